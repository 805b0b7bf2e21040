package membership

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Role is what a member does in consensus.
type Role uint8

// The roles. They are stored: a number is never given another meaning.
const (
	RoleVoter   Role = 1 // votes and acknowledges
	RoleLearner Role = 2 // receives the log, counts in no majority
	RoleLeaving Role = 3 // is being replaced: votes until raft has left the joint configuration
)

// String returns the word of the HTTP interface.
func (r Role) String() string {
	switch r {
	case RoleVoter:
		return "voter"
	case RoleLearner:
		return "learner"
	case RoleLeaving:
		return "leaving"
	}
	return fmt.Sprintf("role%d", uint8(r))
}

// Member is one roster entry. Its identity is (ID, Incarnation); everything else may change.
type Member struct {
	ID          ident.MemberID
	Incarnation ident.Incarnation
	// Name is unique among the members, but for a replacement: the learner that takes the place of a
	// member has its name, and so has one that is leaving.
	Name     string
	GRPCAddr string // advertised host:port, resolved at every dial
	HTTPAddr string
	Role     Role
	// BootEpoch and Capabilities are what the member last reported; 0 until it has.
	BootEpoch    uint64
	Capabilities ident.Capabilities
}

// Tombstone is what is kept of a removed member until it knows that it was removed.
type Tombstone struct {
	ID          ident.MemberID
	Incarnation ident.Incarnation
	Name        string
	RemovedAt   int64 // Unix ms, the stamp of the entry that removed it
	Told        bool  // the notice left
	Acked       bool  // the member wrote its own marker; implies Told
	// Expired: a learner that was never heard of. It is told so, and may join again by itself.
	Expired bool
}

// keepTombstones is how many tombstones that are acked are kept, the newest ones.
const keepTombstones = 256

// Roster is the whole membership at one version, never a delta. A Roster is a value: whoever holds
// one may read it without a lock, and nobody changes the slices of one that was handed out.
type Roster struct {
	// Version grows by one with every roster record applied; genesis is 1.
	Version uint64
	// NextID is given to the next member. Invariant: above every id in Members and Tombstones. An
	// id below NextID that is no member was removed, whether or not its tombstone is still kept.
	NextID     uint64
	Members    []Member    // by ID, ascending
	Tombstones []Tombstone // by ID, ascending
	// History is raised where a majority was lost for good; see Recover.
	History ident.History
}

// Member returns the member with this id.
func (r Roster) Member(id ident.MemberID) (Member, bool) {
	i, ok := slices.BinarySearchFunc(r.Members, id, func(m Member, id ident.MemberID) int {
		return cmp.Compare(m.ID, id)
	})
	if !ok {
		return Member{}, false
	}
	return r.Members[i], true
}

// Named returns the member of this name; where one is being replaced, the newest of the name.
func (r Roster) Named(name string) (Member, bool) {
	for _, m := range slices.Backward(r.Members) {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

// AllNamed returns the members of this name, the oldest first: two while one is being replaced.
func (r Roster) AllNamed(name string) []Member {
	return slices.DeleteFunc(slices.Clone(r.Members), func(m Member) bool { return m.Name != name })
}

// Buried returns the newest tombstone of this name.
func (r Roster) Buried(name string) (Tombstone, bool) {
	for _, t := range slices.Backward(r.Tombstones) {
		if t.Name == name {
			return t, true
		}
	}
	return Tombstone{}, false
}

// Tombstone returns the tombstone of this id, if it is kept.
func (r Roster) Tombstone(id ident.MemberID) (Tombstone, bool) {
	i, ok := slices.BinarySearchFunc(r.Tombstones, id, func(t Tombstone, id ident.MemberID) int {
		return cmp.Compare(t.ID, id)
	})
	if !ok {
		return Tombstone{}, false
	}
	return r.Tombstones[i], true
}

// Removed reports whether id once was a member and is none any more.
func (r Roster) Removed(id ident.MemberID) bool {
	_, member := r.Member(id)
	return !member && id != 0 && uint64(id) < r.NextID
}

// validate reports whether r may be encoded and applied:
//
//  1. members and tombstones ascend by id, from 1, below NextID; no id is in both.
//  2. names are not empty; of one name there is at most one voter and one learner, which has the
//     higher id; incarnations are not zero.
//  3. roles are known; a tombstone that is acked was told.
func (r Roster) validate() error {
	if err := validateMembers(r.Members); err != nil {
		return err
	}
	if n := len(r.Members); n > 0 && uint64(r.Members[n-1].ID) >= r.NextID {
		return fmt.Errorf("member id %d is not below next id %d", r.Members[n-1].ID, r.NextID)
	}
	var last ident.MemberID
	for _, t := range r.Tombstones {
		switch _, member := r.Member(t.ID); {
		case t.ID <= last:
			return fmt.Errorf("tombstone %d follows %d", t.ID, last)
		case uint64(t.ID) >= r.NextID:
			return fmt.Errorf("tombstone %d is not below next id %d", t.ID, r.NextID)
		case member:
			return fmt.Errorf("id %d is a member and has a tombstone", t.ID)
		case t.Acked && !t.Told:
			return fmt.Errorf("tombstone %d is acked and was not told", t.ID)
		}
		last = t.ID
	}
	return nil
}

func validateMembers(members []Member) error {
	names := make(map[string]Member, len(members)) // without those that are leaving
	var last ident.MemberID
	for _, m := range members {
		other, taken := names[m.Name]
		switch {
		case m.ID <= last:
			return fmt.Errorf("member id %d follows %d", m.ID, last)
		case m.Name == "":
			return fmt.Errorf("member %d has no name", m.ID)
		case m.Incarnation.IsZero():
			return fmt.Errorf("member %d has no incarnation", m.ID)
		case m.Role != RoleVoter && m.Role != RoleLearner && m.Role != RoleLeaving:
			return fmt.Errorf("member %d has unknown role %d", m.ID, uint8(m.Role))
		case m.Role != RoleLeaving && taken && (other.Role != RoleVoter || m.Role != RoleLearner):
			return fmt.Errorf("members %d and %d are both named %q", other.ID, m.ID, m.Name)
		}
		if m.Role != RoleLeaving {
			names[m.Name] = m
		}
		last = m.ID
	}
	return nil
}

func named(members []Member, name string) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}
