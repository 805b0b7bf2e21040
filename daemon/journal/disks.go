package journal

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// PeerRefused is a member that this one will not hear.
type PeerRefused struct {
	ID     ident.MemberID `json:"id,string"`
	Name   string         `json:"name"`
	Reason string         `json:"reason"` // amnesia, former_history, other_history
	Detail string         `json:"detail"`
}

func (PeerRefused) Kind() Kind { return KindPeerRefused }
func (f PeerRefused) Text() string {
	return fmt.Sprintf("refuses %s (%s): %s", who(f.ID, f.Name), f.Reason, f.Detail)
}
func (PeerRefused) Same() string { return "" }

// IdentityDuplicated is two processes with the identity of one member.
type IdentityDuplicated struct {
	ID          ident.MemberID `json:"id,string"`
	Name        string         `json:"name"`
	Incarnation string         `json:"incarnation"`
}

func (IdentityDuplicated) Kind() Kind { return KindIdentityDuplicated }
func (f IdentityDuplicated) Text() string {
	return fmt.Sprintf("two processes are %s with incarnation %s: one runs on a copy of the other's directory; both are refused. Stop both; then start the one that was not copied, or neither and put an empty directory in its place: tidalctl members replace %s",
		who(f.ID, f.Name), f.Incarnation, f.Name)
}
func (f IdentityDuplicated) Same() string { return "" }

// ClockSkewed is a peer whose clock is too far from this member's, or is not any more.
type ClockSkewed struct {
	ID      ident.MemberID `json:"id,string"`
	Name    string         `json:"name"`
	SkewMS  int64          `json:"skew_ms"` // how far it is ahead of this member's; negative: behind
	LimitMS int64          `json:"limit_ms"`
	Wrong   bool           `json:"wrong"` // it is further than that; false: it is right again
}

func (ClockSkewed) Kind() Kind { return KindClockSkewed }
func (f ClockSkewed) Text() string {
	switch {
	case !f.Wrong:
		return fmt.Sprintf("the clock of %s is right again", who(f.ID, f.Name))
	case f.SkewMS < 0:
		return fmt.Sprintf("the clock of %s is %d ms behind this member's, at most %d are allowed", who(f.ID, f.Name), -f.SkewMS, f.LimitMS)
	}
	return fmt.Sprintf("the clock of %s is %d ms ahead of this member's, at most %d are allowed", who(f.ID, f.Name), f.SkewMS, f.LimitMS)
}
func (ClockSkewed) Same() string { return "" }

// Recovered is a cluster that goes on from what is left of it.
type Recovered struct {
	History string   `json:"history"`
	Index   uint64   `json:"index"` // the last entry that was here before
	Lost    []string `json:"lost"`  // names of the members that were given up
}

func (Recovered) Kind() Kind { return KindRecovered }
func (f Recovered) Text() string {
	return fmt.Sprintf("the cluster was recovered from this member's disk, as history %s: index %d was its last, given up are %v", f.History, f.Index, f.Lost)
}
func (Recovered) Same() string { return "" }
