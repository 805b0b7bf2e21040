package replica

import (
	"errors"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/datadir"
)

func queued(n int) *write { return &write{data: make([]byte, n), done: make(chan struct{}, 1)} }

func TestQueue_RefusesAboveItsBound(t *testing.T) {
	q := queue{limit: 2 * (waiterBytes + 10)}
	for i := range 2 {
		if wake, err := q.admit(queued(10)); err != nil || wake != (i == 0) {
			t.Fatalf("admit write %d = %t, %v, want %t", i, wake, err, i == 0)
		}
	}
	_, err := q.admit(queued(0))
	full, ok := errors.AsType[*OverloadedError](err)
	if !ok || full.Bytes != q.limit || full.Limit != q.limit || full.RetryAfter == 0 {
		t.Fatalf("admit above the bound = %v", err)
	}
}

func TestQueue_TakesTheOldestUpToTheSizeOfAnEntry(t *testing.T) {
	q := queue{limit: 1 << 20}
	var all []*write
	for _, n := range []int{50, 40, 40, 200, 1} {
		w := queued(n)
		all = append(all, w)
		if _, err := q.admit(w); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range [][]*write{all[0:2], all[2:3], all[3:4], all[4:5], nil} {
		got := q.take(nil, 100, 5) // the write of 200 goes alone
		if len(got) != len(want) {
			t.Fatalf("take returned %d writes, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("take returned another write at %d", i)
			}
		}
	}
	if q.bytes() != 0 {
		t.Errorf("an empty queue holds %d bytes", q.bytes())
	}
}

func TestQueue_AbandonsAnywhereAndOnce(t *testing.T) {
	for _, gone := range []int{0, 1, 2} {
		q := queue{limit: 1 << 20}
		all := []*write{queued(1), queued(2), queued(3)}
		for _, w := range all {
			if _, err := q.admit(w); err != nil {
				t.Fatal(err)
			}
		}
		if !q.abandon(all[gone]) || q.abandon(all[gone]) {
			t.Fatalf("abandon(%d): want true, then false", gone)
		}
		rest := q.take(nil, 1000, 0)
		if len(rest) != 2 || rest[0] == all[gone] || rest[1] == all[gone] || q.abandon(rest[0]) {
			t.Fatalf("after abandon(%d) %d writes are left", gone, len(rest))
		}
		if q.bytes() != 0 {
			t.Fatalf("after abandon(%d) the empty queue holds %d bytes", gone, q.bytes())
		}
	}
}

func TestQueue_CloseAnswersWhatWaitsAndWhatComes(t *testing.T) {
	q := queue{limit: 1 << 20}
	w, first := queued(1), errors.New("first reason")
	if _, err := q.admit(w); err != nil {
		t.Fatal(err)
	}
	q.close(first)
	q.close(errors.New("second reason"))
	if <-w.done; w.err != first {
		t.Errorf("the waiting write was answered with %v", w.err)
	}
	if _, err := q.admit(queued(1)); err != first {
		t.Errorf("a later write was answered with %v", err)
	}
}

// A caller must not join a round whose index may have been drawn before the caller came.
func TestReads_AtMostOneRoundUnderWayAndOneGathering(t *testing.T) {
	var r reads
	first, wake, _ := r.join()
	if again, more, _ := r.join(); again != first || !wake || more {
		t.Fatal("callers that come before a round begins share it, and one wakes the loop")
	}
	if !r.begin() || r.begin() {
		t.Fatal("begin: want true, then false while a round is under way")
	}
	second, wake, _ := r.join()
	if second == first || !wake {
		t.Fatal("a caller joined the round under way")
	}
	r.answer(7)
	if <-first.done; first.index != 7 {
		t.Fatalf("the round ended with index %d, want 7", first.index)
	}
	if !r.begin() || r.current != second {
		t.Fatal("the gathering round did not begin after the answer")
	}
	third, _, _ := r.join()
	r.close(ErrClosed)
	for _, rd := range []*round{second, third} {
		if <-rd.done; rd.err != ErrClosed {
			t.Errorf("close ended a round with %v", rd.err)
		}
	}
	if _, _, err := r.join(); err != ErrClosed {
		t.Errorf("join after close = %v", err)
	}
}

func TestWithVote_NeverOpensWithOldVotes(t *testing.T) {
	for _, tc := range []struct {
		name       string
		log, votes datadir.Vote
		want       bool
	}{
		{name: "equal", log: datadir.Vote{Term: 3, Vote: 1}, votes: datadir.Vote{Term: 3, Vote: 1}, want: true},
		{name: "crash between votes and log", log: datadir.Vote{Term: 3, Vote: 1}, votes: datadir.Vote{Term: 4, Vote: 2}, want: true},
		{name: "vote in the log's term", log: datadir.Vote{Term: 3}, votes: datadir.Vote{Term: 3, Vote: 2}, want: true},
		{name: "term behind", log: datadir.Vote{Term: 3}, votes: datadir.Vote{Term: 2, Vote: 1}},
		{name: "vote missing", log: datadir.Vote{Term: 3, Vote: 1}, votes: datadir.Vote{Term: 3}},
		{name: "another vote", log: datadir.Vote{Term: 3, Vote: 1}, votes: datadir.Vote{Term: 3, Vote: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hs, err := withVote(&pb.HardState{Term: &tc.log.Term, Vote: &tc.log.Vote, Commit: new(uint64(9))}, tc.votes)
			if !tc.want {
				if _, ok := errors.AsType[*VotesBehindError](err); !ok {
					t.Fatalf("withVote = %v, %v, want a *VotesBehindError", hs, err)
				}
				return
			}
			if err != nil || hs.GetTerm() != tc.votes.Term || hs.GetVote() != tc.votes.Vote || hs.GetCommit() != 9 {
				t.Fatalf("withVote = %v, %v, want the votes with commit 9", hs, err)
			}
		})
	}
}
