package witness

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestMemory_Judge(t *testing.T) {
	t.Parallel()
	inc := ident.Incarnation{1}
	at := func(term, entry, index uint64) []Claim {
		return []Claim{{Term: term, Last: ident.EntryID{Term: entry, Index: index}}}
	}
	remembered := func(mark Mark) Memory {
		m := Memory{}
		m.Admit(Greeting{Member: 2, Incarnation: inc, Epoch: 5, Life: 55})
		m.Note(2, 0, mark)
		return m
	}
	acked := Mark{}.Heard(3).Acked(7, 100, 7)
	for _, tc := range []struct {
		name    string
		mark    Mark
		is      Greeting
		refused string // a part of the text; empty: taken
	}{
		{"a stranger", acked, Greeting{Member: 3, Incarnation: inc, Epoch: 1}, ""},
		{"another incarnation, which the roster judges", acked, Greeting{Member: 2, Incarnation: ident.Incarnation{2}, Epoch: 1}, ""},
		{"the same process", acked, Greeting{Epoch: 5, Life: 55, Groups: at(7, 7, 100)}, ""},
		{"a restart", acked, Greeting{Epoch: 6, Life: 66, Groups: at(7, 7, 100)}, ""},
		{"a restart with more", acked, Greeting{Epoch: 6, Life: 66, Groups: at(7, 7, 130)}, ""},
		{"an older boot", acked, Greeting{Epoch: 4, Life: 44, Groups: at(9, 9, 999)}, "boot 4 of its directory, boot 5 was here"},
		{"another process of the same boot", acked, Greeting{Epoch: 5, Life: 56, Groups: at(7, 7, 100)}, "boot 5 of its directory was another process"},
		{"the same boot of a binary that says no life", acked, Greeting{Epoch: 5, Groups: at(7, 7, 100)}, ""},
		{"a lower term", acked, Greeting{Epoch: 6, Groups: at(6, 6, 500)}, "it is in term 6 of group 0, it spoke in term 7"},
		{"a shorter log in the same term", acked, Greeting{Epoch: 6, Groups: at(7, 7, 99)}, "ends at index 99, in this term (7) it acknowledged index 100"},
		{"a shorter log in a later term: a new leader cut it", acked, Greeting{Epoch: 6, Groups: at(8, 8, 60)}, ""},
		{"an old tail that is longer than what replaced it", acked, Greeting{Epoch: 6, Groups: at(7, 6, 140)}, "ends with an entry of term 6, in this term (7) it acknowledged one of term 7"},
		{"a later term that it never spoke in", acked, Greeting{Epoch: 6, Groups: at(9, 7, 100)}, ""},
		{"a term it only voted in", Mark{}.Acked(7, 100, 7).Heard(8), Greeting{Epoch: 6, Groups: at(7, 7, 100)}, "it spoke in term 8"},
		{"an acknowledgement of what an earlier term left", Mark{}.Acked(7, 90, 3), Greeting{Epoch: 6, Groups: at(7, 3, 100)}, ""},
		{"a disk that went back, and heard of a later term since", acked, Greeting{Epoch: 6, Life: 66, Booted: at(5, 5, 18), Groups: at(8, 5, 18)}, "it is in term 5 of group 0, it spoke in term 7"},
		{"a log that lost its end, and heard of a later term since", acked, Greeting{Epoch: 6, Life: 66, Booted: at(7, 7, 99), Groups: at(8, 7, 99)}, "ends at index 99"},
		{"a restart that heard of a later term since", acked, Greeting{Epoch: 6, Life: 66, Booted: at(7, 7, 100), Groups: at(8, 8, 60)}, ""},
		{"a process that was less far when it began", acked, Greeting{Epoch: 5, Life: 55, Booted: at(6, 6, 10), Groups: at(7, 7, 100)}, ""},
		{"no group open", acked, Greeting{Epoch: 6}, ""},
		{"an older binary, which says no term", acked, Greeting{Epoch: 6, Groups: at(0, 3, 10)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := remembered(tc.mark)
			if tc.is.Member == 0 {
				tc.is.Member, tc.is.Incarnation = 2, inc
			}
			err := m.Judge(tc.is)
			if _, ok := errors.AsType[*AmnesiaError](err); (err != nil) != ok {
				t.Fatalf("Judge = %T", err)
			}
			if tc.refused == "" && err != nil || tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("Judge(%+v) = %v, want %q", tc.is, err, tc.refused)
			}
		})
	}
}

// A claim counts as an acknowledgement only where nothing of it can be cut in its term.
func TestMark_Claimed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		claim Claim
		want  Mark
	}{
		{"an entry of the term", Claim{Term: 5, Last: ident.EntryID{Term: 5, Index: 9}}, Mark{5, 5, 9, 5}},
		{"the tail of an earlier term", Claim{Term: 5, Last: ident.EntryID{Term: 4, Index: 9}}, Mark{Spoke: 5}},
		{"nothing said", Claim{Last: ident.EntryID{Term: 4, Index: 9}}, Mark{}},
	} {
		if got := (Mark{}).Claimed(tc.claim); got != tc.want {
			t.Errorf("%s: Claimed(%+v) = %+v, want %+v", tc.name, tc.claim, got, tc.want)
		}
	}
}

// disk is what a member of the property tests has: terms of the entries of its log from index 1, and
// the term and boot that it will not go back below.
type disk struct {
	epoch, term uint64
	log         []uint64
}

func (d disk) clone() disk {
	d.log = append([]uint64(nil), d.log...)
	return d
}

func (d disk) claim() Claim {
	c := Claim{Term: d.term}
	if n := len(d.log); n > 0 {
		c.Last = ident.EntryID{Term: d.log[n-1], Index: uint64(n)}
	}
	return c
}

// history drives one member through leaders, power losses and restarts, beside a witness that hears a
// part of what it says. Logs are those of raft: the leader of a term has one log that only grows, it
// contains what was committed, and a follower's becomes equal to it from the front.
type history struct {
	t       *rapid.T
	durable disk     // on its disk
	memory  disk     // in its process: what the next sync brings to the disk
	leader  []uint64 // log of the newest leader; its last entry is of its term
	newest  uint64   // the newest term of anybody
	life    uint64
	witness Memory
}

func (h *history) greeting() Greeting {
	return Greeting{Member: 2, Epoch: h.durable.epoch, Life: h.life, Groups: []Claim{h.durable.claim()}}
}

// start is a start of the process on what the disk has.
func (h *history) start() {
	h.durable.epoch++
	h.life = rapid.Uint64Min(1).Draw(h.t, "life")
	h.memory = h.durable.clone()
}

// step does one thing, and lets the witness hear of it or not.
func (h *history) step() {
	heard := rapid.Bool().Draw(h.t, "heard")
	switch rapid.SampledFrom([]string{"append", "append", "sync", "vote", "elect", "lead", "crash", "greet", "ping"}).Draw(h.t, "step") {
	case "append": // a part of what the leader has more than this member
		common := 0
		for common < len(h.leader) && common < len(h.memory.log) && h.leader[common] == h.memory.log[common] {
			common++
		}
		if len(h.leader) == 0 || h.leader[len(h.leader)-1] < h.memory.term {
			break // nobody leads whom this member would follow
		}
		h.memory.term = h.leader[len(h.leader)-1]
		n := rapid.IntRange(0, len(h.leader)-common).Draw(h.t, "entries")
		if n > 0 {
			h.memory.log = append(h.memory.log[:common:common], h.leader[common:common+n]...)
		}
		h.sync() // an acknowledgement waits for it
		if heard {
			acked := uint64(common + n)
			if rapid.Bool().Draw(h.t, "probe") {
				acked = uint64(rapid.IntRange(0, common+n).Draw(h.t, "acked"))
			}
			entry := uint64(0)
			if acked > 0 && rapid.Bool().Draw(h.t, "entry known") {
				entry = h.memory.log[acked-1]
			}
			h.witness.Note(2, 0, h.witness.Mark(2, 0).Acked(h.memory.term, acked, entry))
		}
	case "sync":
		h.sync()
	case "vote":
		h.newest++
		h.memory.term = h.newest
		h.sync()
		h.elected() // in the term after that
		if heard {
			h.witness.Note(2, 0, h.witness.Mark(2, 0).Heard(h.durable.term))
		}
	case "elect": // another one, and this member hears of it
		h.elected()
		h.memory.term = h.newest
	case "lead": // it writes
		if n := len(h.leader); n > 0 {
			h.leader = append(h.leader, h.leader[n-1])
		}
	case "crash":
		h.start()
	case "greet":
		g := h.greeting()
		if err := h.witness.Judge(g); err != nil {
			h.t.Fatalf("an honest member is refused: %v\n%+v", err, g)
		}
		if heard {
			h.witness.Admit(g)
		}
	case "ping":
		if heard {
			h.witness.Note(2, 0, h.witness.Mark(2, 0).Claimed(h.durable.claim()))
		}
	}
}

func (h *history) sync() {
	epoch := h.durable.epoch
	h.durable = h.memory.clone()
	h.durable.epoch = epoch
}

// elected gives a new term a leader whose log is this member's up to somewhere, then other entries, then
// one of its own.
func (h *history) elected() {
	h.newest++
	from := rapid.IntRange(0, len(h.memory.log)).Draw(h.t, "leader has")
	h.leader = append([]uint64(nil), h.memory.log[:from]...)
	last := uint64(1)
	if from > 0 {
		last = h.leader[from-1]
	}
	for range rapid.IntRange(0, 3).Draw(h.t, "leader more") {
		if last >= h.newest {
			break
		}
		last = rapid.Uint64Range(last, h.newest-1).Draw(h.t, "term")
		h.leader = append(h.leader, last)
	}
	h.leader = append(h.leader, h.newest)
}

func begin(t *rapid.T) *history {
	h := &history{t: t}
	h.start()
	h.witness.Admit(h.greeting())
	return h
}

func TestMemory_TakesEveryHonestMember(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := begin(t)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			h.step()
		}
		h.start()
		if err := h.witness.Judge(h.greeting()); err != nil {
			t.Fatalf("an honest member is refused: %v", err)
		}
	})
}

// An old copy of a disk is refused if the witness heard anything that the copy does not hold: a later
// boot, a later term, or an acknowledgement of an entry of the leader's own term.
func TestMemory_RefusesWhatWentBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := begin(t)
		for range rapid.IntRange(0, 30).Draw(t, "steps before") {
			h.step()
		}
		copied := h.durable.clone()
		was := h.witness.Mark(2, 0)
		for range rapid.IntRange(0, 30).Draw(t, "steps after") {
			h.step()
		}
		now := h.witness.Mark(2, 0)
		lacks := now.Spoke > copied.term
		if now.AckTerm == copied.term && now.AckEntry == now.AckTerm && now != was {
			n := now.AckIndex
			lacks = lacks || n > uint64(len(copied.log)) || copied.log[n-1] != now.AckTerm
		}
		r := h.witness.members[2]
		lacks = lacks || r.epoch > copied.epoch+1
		h.durable = copied
		h.start()
		if err := h.witness.Judge(h.greeting()); lacks && err == nil {
			t.Fatalf("a disk that went back to %+v is taken; remembered: boot %d, %+v", copied, r.epoch, now)
		}
	})
}
