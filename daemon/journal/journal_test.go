package journal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func raised(term uint64) Fact { return TermRaised{Term: term, Was: term - 1} }

// terms reads the terms out of events, and checks that their ids follow id.
func terms(t testing.TB, id ID, events []Event) []uint64 {
	t.Helper()
	var got []uint64
	for _, e := range events {
		id.Seq++
		if e.ID != id {
			t.Fatalf("event %s where %s comes next", e.ID, id)
		}
		got = append(got, e.Fact.(TermRaised).Term)
	}
	return got
}

// Whatever is added and wherever a reader begins, it gets every event once and in order, or is told
// exactly where it has to begin.
func TestAfter_NoHoleAndNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := New(Options{Boot: 3})
		added := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(Capacity-3, Capacity+300)).Draw(t, "added")
		for i := range added {
			j.Add(raised(uint64(i + 1)))
		}
		floor := ID{3, uint64(max(added-Capacity, 0))}
		last := ID{3, uint64(added)}
		at := ID{rapid.Uint64Range(2, 4).Draw(t, "boot"), uint64(rapid.IntRange(0, added+3).Draw(t, "seq"))}
		got, err := j.After(at, rapid.IntRange(0, Capacity).Draw(t, "limit"))
		compacted, isCompacted := errors.AsType[*CompactedError](err)
		unknown, isUnknown := errors.AsType[*UnknownIDError](err)
		switch {
		case at.Less(floor):
			if !isCompacted || compacted.Floor != floor || compacted.After != at {
				t.Fatalf("after %s of %s..%s: %v", at, floor, last, err)
			}
			at = compacted.Floor
		case last.Less(at):
			if !isUnknown || unknown.Last != last {
				t.Fatalf("after %s of %s..%s: %v", at, floor, last, err)
			}
			return
		case err != nil:
			t.Fatalf("after %s of %s..%s: %v", at, floor, last, err)
		}
		// Page on to the end.
		read := at.Seq
		for {
			if read += uint64(len(got)); len(got) > 0 {
				at = got[len(got)-1].ID
			}
			if got, err = j.After(at, 100); err != nil {
				t.Fatal(err)
			} else if len(got) == 0 {
				break
			}
			for i, e := range got {
				if want := at.Seq + uint64(i) + 1; e.ID != (ID{3, want}) || e.Fact != raised(want) {
					t.Fatalf("event %s is %v, want number %d", e.ID, e.Fact, want)
				}
			}
		}
		if read != last.Seq {
			t.Fatalf("read up to %d of %s", read, last)
		}
	})
}

func TestNewest(t *testing.T) {
	j := New(Options{Boot: 1})
	if got := j.Newest(10); got != (ID{1, 0}) {
		t.Errorf("Newest of nothing = %s", got)
	}
	for i := range 5 {
		j.Add(raised(uint64(i + 1)))
	}
	for n, want := range map[int]uint64{0: 5, 2: 3, 5: 0, 99: 0} {
		if got := j.Newest(n); got != (ID{1, want}) {
			t.Errorf("Newest(%d) = %s, want 1-%d", n, got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := New(Options{Boot: 2, Metrics: prometheus.NewRegistry()})
		j.Add(raised(1))
		f, err := j.Follow(ID{2, 0})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		next := func() []uint64 {
			t.Helper()
			at := f.At()
			events, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return terms(t, at, events)
		}
		if got := next(); len(got) != 1 || got[0] != 1 {
			t.Fatalf("first: %v", got)
		}

		// It waits for the next one, and no longer than it is told.
		got := make(chan []uint64)
		go func() { got <- next() }()
		synctest.Wait()
		j.Add(raised(2))
		if terms := <-got; len(terms) != 1 || terms[0] != 2 {
			t.Errorf("second: %v", terms)
		}
		idle := errors.New("idle")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, idle)
		defer cancel()
		if _, err := f.Next(ctx); !errors.Is(err, idle) {
			t.Errorf("Next = %v, want %v", err, idle)
		}

		// A reader that was too slow is told, and goes on where the ring begins.
		for i := range Capacity + 10 {
			j.Add(raised(uint64(i + 3)))
		}
		_, err = f.Next(t.Context())
		compacted, ok := errors.AsType[*CompactedError](err)
		if !ok || compacted.After != (ID{2, 2}) || compacted.Floor != (ID{2, 12}) || f.At() != compacted.Floor {
			t.Fatalf("Next = %v, at %s", err, f.At())
		}
		for read := 0; read < Capacity; {
			read += len(next())
		}

		// The last event is read, then it ends; nothing comes after it.
		j.Close(Stopping{})
		j.Close(Stopping{})
		j.Add(raised(9))
		events, err := f.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].Fact != (Stopping{}) {
			t.Errorf("Next = %v, %v", events, err)
		}
		if _, err := f.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Next = %v, want %v", err, ErrClosed)
		}
	})
}

func TestFollow_IsBounded(t *testing.T) {
	j := New(Options{Boot: 1})
	var all []*Follower
	for range MaxFollowers {
		f, err := j.Follow(ID{1, 0})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	_, err := j.Follow(ID{1, 0})
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Limit != MaxFollowers {
		t.Errorf("one more = %v", err)
	}
	all[0].Close()
	if f, err := j.Follow(ID{1, 0}); err != nil {
		t.Errorf("after one left: %v", err)
	} else {
		f.Close()
	}
}

func TestID_ParsesWhatItPrints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID{rapid.Uint64().Draw(t, "boot"), rapid.Uint64().Draw(t, "seq")}
		if got, err := ParseID(id.String()); err != nil || got != id {
			t.Fatalf("%s is read as %s, %v", id, got, err)
		}
	})
	for _, s := range []string{"", "-", "1", "1-", "-1", "01-1", "1-+2", "1-2-3", "1-18446744073709551616", "a-b"} {
		if id, err := ParseID(s); err == nil {
			t.Errorf("ParseID(%q) = %s", s, id)
		}
	}
}
