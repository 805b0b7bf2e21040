// Package witness remembers what other members promised, and refuses one that has forgotten.
//
// A member that acknowledged entries, or spoke in a term, has that on its disk. If it comes back with
// less, its disk is not the one that it promised on: an old copy was put back, a directory was copied,
// or the last frame of its log rotted, which looks like a write that a crash cut short. It must not
// vote or acknowledge again, and it cannot know: others must. A Memory is what one member remembers;
// Judge compares it with what a member says of itself when it opens a stream.
//
// What it promises: an honest member is never refused, whatever it lost in a power loss, because only
// what was durable before it was said is remembered ("persist before speak", package consensus); requests
// for pre-votes promise nothing and do not count. A member whose disk went back behind what this Memory
// holds is always refused. What is not here cannot be judged: a Memory is saved now and then (see package member), so a
// witness that itself loses power forgets the last seconds, and one that cannot be reached does not
// witness.
//
// Everything is a value or pure but Memory, which its owner guards. Callers: member.
package witness

import (
	"fmt"
	"slices"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Claim is what a member says of one group when it opens a stream: how far its disk is now.
type Claim struct {
	Group ident.GroupID
	Term  uint64        // durable: it will not go back below it; 0: not said
	Last  ident.EntryID // the last entry of its log that is durable
}

// Greeting is what a member says of itself when it opens a stream.
type Greeting struct {
	Member      ident.MemberID
	Incarnation ident.Incarnation
	Epoch       uint64 // raised, durably, at every start
	Life        uint64 // drawn at every start; 0: not said
	Groups      []Claim
	// Booted is what its disk held when this process opened it first. What it says now may be of a term that
	// it only heard of since, from somebody who does not remember, and by which it is not to be judged. Empty:
	// not said.
	Booted []Claim
}

// Mark is the highest that a member promised in one group.
type Mark struct {
	Spoke uint64 // the highest term that it spoke in

	// In term AckTerm the member acknowledged its log up to AckIndex, whose entry is of term AckEntry,
	// or 0 where that is not known.
	//
	// Invariant: AckEntry <= AckTerm <= Spoke.
	AckTerm, AckIndex, AckEntry uint64
}

// Heard returns m after the member spoke in a term.
func (m Mark) Heard(term uint64) Mark {
	m.Spoke = max(m.Spoke, term)
	return m
}

// Acked returns m after the member acknowledged, in a term, its log up to index, where there is an
// entry of term entry; 0: not known.
//
// Acknowledgements are compared by the term they were made in. Indexes alone would refuse a healthy
// member: one that follows a new leader may have had to cut its log.
func (m Mark) Acked(term, index, entry uint64) Mark {
	m = m.Heard(term)
	if term > m.AckTerm {
		m.AckTerm, m.AckIndex, m.AckEntry = term, 0, 0
	}
	if term == m.AckTerm {
		m.AckIndex, m.AckEntry = max(m.AckIndex, index), max(m.AckEntry, entry)
	}
	return m
}

// Claimed returns m after the member said how far its disk is. That is an acknowledgement only where
// its last entry is of its present term: the tail of an earlier term may still be cut in this one.
func (m Mark) Claimed(c Claim) Mark {
	if c.Term != 0 && c.Last.Term == c.Term {
		return m.Acked(c.Term, c.Last.Index, c.Last.Term)
	}
	return m.Heard(c.Term)
}

// forgotten says what of m the claim lacks, or "". Within one term a log only grows beyond what was
// acknowledged in it, and its last entry is never of an earlier term than an acknowledged one.
func (m Mark) forgotten(c Claim) string {
	switch {
	case c.Term < m.Spoke:
		return fmt.Sprintf("it is in term %d of group %s, it spoke in term %d", c.Term, c.Group, m.Spoke)
	case c.Term > m.AckTerm:
		return ""
	case c.Last.Index < m.AckIndex:
		return fmt.Sprintf("its log of group %s ends at index %d, in this term (%d) it acknowledged index %d", c.Group, c.Last.Index, c.Term, m.AckIndex)
	case c.Last.Term < m.AckEntry:
		return fmt.Sprintf("its log of group %s ends with an entry of term %d, in this term (%d) it acknowledged one of term %d", c.Group, c.Last.Term, c.Term, m.AckEntry)
	}
	return ""
}

// AmnesiaError refuses a member whose disk went back behind what it promised.
type AmnesiaError struct {
	Member      ident.MemberID
	Incarnation ident.Incarnation
	Detail      string
}

func (e *AmnesiaError) Error() string {
	return fmt.Sprintf("member %s has forgotten what it promised: %s", e.Member, e.Detail)
}

// record is what is remembered of one member.
type record struct {
	incarnation ident.Incarnation
	epoch, life uint64
	groups      map[ident.GroupID]Mark
}

// Memory is what one member remembers of the others, a record an id: ids are never reused, and a
// record of another incarnation gives way. The zero Memory remembers nothing. Not safe for concurrent
// use.
type Memory struct {
	members map[ident.MemberID]*record
}

// Judge returns nil, or an *AmnesiaError: g says less than what is remembered of it.
//
//	g.Epoch              g.Life      group                                   →
//	older                any         any                                     refused
//	the same             another     any                                     refused: two starts had one epoch
//	the same, or newer   –           a term below one that it spoke in       refused
//	the same, or newer   –           the term of its last acknowledgement,
//	                                 a log that ends before it               refused
//	the same, or newer   –           anything else, or not held open         taken
//
// The group is as it is now, and, of a start that is new here, also as that start found it.
func (m *Memory) Judge(g Greeting) error {
	r := m.members[g.Member]
	if r == nil || r.incarnation != g.Incarnation || mutantWitnessIgnored {
		return nil
	}
	refuse := func(detail string) error {
		return &AmnesiaError{Member: g.Member, Incarnation: g.Incarnation, Detail: detail}
	}
	switch {
	case g.Epoch < r.epoch:
		return refuse(fmt.Sprintf("this is boot %d of its directory, boot %d was here", g.Epoch, r.epoch))
	case g.Epoch == r.epoch && g.Life != r.life && g.Life != 0 && r.life != 0:
		return refuse(fmt.Sprintf("boot %d of its directory was another process", g.Epoch))
	}
	claims := g.Groups
	if g.Epoch != r.epoch || g.Life != r.life { // all that is remembered is older than this start
		claims = append(slices.Clone(g.Booted), claims...)
	}
	for _, c := range claims {
		if c.Term == 0 && g.Life == 0 {
			continue // an older binary says neither
		}
		if what := r.groups[c.Group].forgotten(c); what != "" {
			return refuse(what)
		}
	}
	return nil
}

// Admit takes note of a greeting that Judge has taken. It reports whether the boot is a new one.
func (m *Memory) Admit(g Greeting) (news bool) {
	r := m.members[g.Member]
	if r == nil || r.incarnation != g.Incarnation {
		r = &record{incarnation: g.Incarnation, groups: map[ident.GroupID]Mark{}}
		if m.members == nil {
			m.members = map[ident.MemberID]*record{}
		}
		m.members[g.Member] = r
	}
	news = r.epoch != g.Epoch || r.life != g.Life
	r.epoch, r.life = g.Epoch, g.Life
	for _, c := range g.Groups {
		r.groups[c.Group] = r.groups[c.Group].Claimed(c)
	}
	return news
}

// Mark returns what is remembered of a member in a group.
func (m *Memory) Mark(id ident.MemberID, g ident.GroupID) Mark {
	if r := m.members[id]; r != nil {
		return r.groups[g]
	}
	return Mark{}
}

// Note replaces it. A member that never greeted has no record, and none is made.
func (m *Memory) Note(id ident.MemberID, g ident.GroupID, mark Mark) {
	if r := m.members[id]; r != nil {
		r.groups[g] = mark
	}
}

// Keep forgets every member that keep does not name.
func (m *Memory) Keep(keep func(ident.MemberID) bool) {
	for id := range m.members {
		if !keep(id) {
			delete(m.members, id)
		}
	}
}
