package journal

import (
	"fmt"
	"strings"

	"github.com/tidaldb/tidal/daemon/ident"
)

// MemberAdded is a member that joined.
type MemberAdded struct {
	ID       ident.MemberID `json:"id,string"`
	Name     string         `json:"name"`
	Version  uint64         `json:"version"`         // of the roster
	Replaces ident.MemberID `json:"replaces,string"` // 0: nobody
}

func (MemberAdded) Kind() Kind { return KindMemberAdded }
func (f MemberAdded) Text() string {
	if f.Replaces != 0 {
		return fmt.Sprintf("%s joined as member %s, to replace member %s", f.Name, f.ID, f.Replaces)
	}
	return fmt.Sprintf("%s joined as member %s", f.Name, f.ID)
}
func (f MemberAdded) Same() string { return fmt.Sprintf("%s/%s", KindMemberAdded, f.ID) }

// MemberPromoted is a learner that became a voter.
type MemberPromoted struct {
	ID      ident.MemberID `json:"id,string"`
	Name    string         `json:"name"`
	Version uint64         `json:"version"`
}

func (MemberPromoted) Kind() Kind { return KindPromoted }
func (f MemberPromoted) Text() string {
	return fmt.Sprintf("%s, member %s, is a voter", f.Name, f.ID)
}
func (f MemberPromoted) Same() string { return fmt.Sprintf("%s/%s", KindPromoted, f.ID) }

// MemberRemoved is a member that is none any more.
type MemberRemoved struct {
	ID      ident.MemberID `json:"id,string"`
	Name    string         `json:"name"`
	Version uint64         `json:"version"`
}

func (MemberRemoved) Kind() Kind { return KindMemberRemoved }
func (f MemberRemoved) Text() string {
	return fmt.Sprintf("%s, member %s, was removed", f.Name, f.ID)
}
func (f MemberRemoved) Same() string { return fmt.Sprintf("%s/%s", KindMemberRemoved, f.ID) }

// LearnerExpired is a learner that nobody ever heard of.
type LearnerExpired struct {
	ID      ident.MemberID `json:"id,string"`
	Name    string         `json:"name"`
	Version uint64         `json:"version"`
}

func (LearnerExpired) Kind() Kind { return KindExpired }
func (f LearnerExpired) Text() string {
	return fmt.Sprintf("%s, member %s, was never heard of and expired; it may join again", f.Name, f.ID)
}
func (f LearnerExpired) Same() string { return fmt.Sprintf("%s/%s", KindExpired, f.ID) }

// AddressChanged is a member that is somewhere else.
type AddressChanged struct {
	ID       ident.MemberID `json:"id,string"`
	Name     string         `json:"name"`
	Version  uint64         `json:"version"`
	GRPCAddr string         `json:"grpc_addr"`
	HTTPAddr string         `json:"http_addr"`
}

func (AddressChanged) Kind() Kind { return KindMoved }
func (f AddressChanged) Text() string {
	return fmt.Sprintf("%s is at %s (gRPC) and %s (HTTP) now", f.Name, f.GRPCAddr, f.HTTPAddr)
}
func (f AddressChanged) Same() string {
	return fmt.Sprintf("%s/%s/%d", KindMoved, f.ID, f.Version)
}

// RemovalGivenUp is a removed member that never acknowledged.
type RemovalGivenUp struct {
	ID   ident.MemberID `json:"id,string"`
	Name string         `json:"name"`
}

func (RemovalGivenUp) Kind() Kind { return KindGivenUp }
func (f RemovalGivenUp) Text() string {
	return fmt.Sprintf("%s, member %s, has not acknowledged its removal and is told no more unless it calls", f.Name, f.ID)
}
func (f RemovalGivenUp) Same() string { return fmt.Sprintf("%s/%s", KindGivenUp, f.ID) }

// FeatureActivated is what this member, the leader, has let the log make use of.
type FeatureActivated struct {
	Capabilities []string `json:"capabilities"`
	Index        uint64   `json:"index"`
}

func (FeatureActivated) Kind() Kind { return KindActivated }
func (f FeatureActivated) Text() string {
	return fmt.Sprintf("the log makes use of %s from index %d on", strings.Join(f.Capabilities, ", "), f.Index)
}
func (f FeatureActivated) Same() string { return fmt.Sprintf("%s/%d", KindActivated, f.Index) }

// Removed is this member's own end.
type Removed struct {
	ID      ident.MemberID `json:"id,string"`
	Expired bool           `json:"expired"` // it was never heard of, and may join again
}

func (Removed) Kind() Kind { return KindRemoved }
func (f Removed) Text() string {
	if f.Expired {
		return fmt.Sprintf("was told that it expired as member %s, and may join again", f.ID)
	}
	return fmt.Sprintf("was told that it was removed as member %s", f.ID)
}
func (Removed) Same() string { return "" }
