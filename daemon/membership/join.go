package membership

import (
	"fmt"
	"net"
	"strconv"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Candidate asks to become a member.
type Candidate struct {
	Name         string
	Incarnation  ident.Incarnation
	GRPCAddr     string // advertised
	HTTPAddr     string
	Capabilities ident.Capabilities
	// Rejoin says that the name is meant although a member of this name was removed.
	Rejoin bool
}

// CandidateError refuses a candidate for what it says of itself.
type CandidateError struct{ Field, Detail string }

func (e *CandidateError) Error() string { return e.Field + " " + e.Detail }

// NameTakenError refuses a candidate because a member of its name, with another disk, is alive, or not
// known to be gone.
type NameTakenError struct {
	Name  string
	ID    ident.MemberID
	Heard time.Duration // ago; 0: it is the leader
	Grace time.Duration
}

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("%s is member %s, with another data directory, and was heard of %s ago; it counts as lost after %s",
		e.Name, e.ID, e.Heard.Round(100*time.Millisecond), e.Grace)
}

// RemovedError refuses a candidate because a member of its name, or with its data directory, was removed.
type RemovedError struct {
	Name string
	ID   ident.MemberID // 0: not known
	Kept bool           // the directory is the removed member's: it can never take part again
}

func (e *RemovedError) Error() string {
	if e.Kept && e.ID == 0 {
		return fmt.Sprintf("this data directory is that of %s, which was removed; join with an empty one", e.Name)
	}
	if e.Kept {
		return fmt.Sprintf("this data directory is that of %s, member %s, which was removed; join with an empty one", e.Name, e.ID)
	}
	return fmt.Sprintf("%s, member %s, was removed; join with rejoin to use the name again", e.Name, e.ID)
}

// ReplaceManualError refuses to replace a lost member before an operator asks for it.
type ReplaceManualError struct {
	Name string
	ID   ident.MemberID
}

func (e *ReplaceManualError) Error() string {
	return fmt.Sprintf("%s is member %s, with another data directory; membership.replace_lost is manual", e.Name, e.ID)
}

// ReplaceFlappingError refuses to replace a member that was replaced too often.
type ReplaceFlappingError struct {
	Name         string
	Times, Limit int
	Within       time.Duration
}

func (e *ReplaceFlappingError) Error() string {
	return fmt.Sprintf("%s was replaced %d times within %s, limit %d", e.Name, e.Times, e.Within, e.Limit)
}

// Join decides about a candidate. An empty record says that it is a member already, the one returned;
// otherwise it becomes that member, a learner, when the record is applied. Errors: *CandidateError,
// *CapabilityMissingError, *NameTakenError, *RemovedError, *ReplaceManualError, *ReplaceFlappingError,
// *ChangeInProgressError.
func (v View) Join(c Candidate) (Record, Member, error) {
	if err := c.validate(); err != nil {
		return Record{}, Member{}, err
	}
	for _, m := range v.Roster.Members {
		switch {
		case m.Name == c.Name && mutantCandidateByName:
			return Record{}, m, nil
		case m.Incarnation != c.Incarnation:
		case m.Name == c.Name:
			return Record{}, m, nil
		default:
			return Record{}, Member{}, &CandidateError{"incarnation", fmt.Sprintf("is that of %s: was its data directory copied?", m.Name)}
		}
	}
	if err := v.mayJoin(c); err != nil {
		return Record{}, Member{}, err
	}
	if err := v.Busy(); err != nil {
		return Record{}, Member{}, err
	}
	next := v.Roster.next()
	learner := next.add(Member{
		Incarnation: c.Incarnation, Name: c.Name, GRPCAddr: c.GRPCAddr, HTTPAddr: c.HTTPAddr, Role: RoleLearner, Capabilities: c.Capabilities,
	})
	steps := []*pb.ConfChangeSingle{step(pb.ConfChangeAddLearnerNode, learner.ID)}
	// A learner whose disk is lost makes way at once: nothing was ever promised on its word.
	var lost []ident.MemberID
	if old, ok := v.Roster.Named(c.Name); ok && old.Role == RoleLearner {
		lost = append(lost, old.ID)
	}
	conf := v.without(&next, steps, lost...)
	return Record{Roster: next, Conf: conf, Does: "join"}, learner, nil
}

// mayJoin says why a candidate that is no member may not become one.
func (v View) mayJoin(c Candidate) error {
	if missing := v.Activated &^ c.Capabilities; missing != 0 {
		return &CapabilityMissingError{Capabilities: missing, Members: []string{c.Name}}
	}
	for _, t := range v.Roster.Tombstones {
		if t.Incarnation == c.Incarnation && !t.Expired {
			return &RemovedError{Name: t.Name, ID: t.ID, Kept: true}
		}
	}
	if old, ok := v.Roster.Named(c.Name); ok {
		return v.mayReplace(old)
	}
	if t, ok := v.Roster.Buried(c.Name); ok && !t.Expired && !c.Rejoin {
		return &RemovedError{Name: c.Name, ID: t.ID}
	}
	return nil
}

// mayReplace says why old may not be replaced by another incarnation of its name.
func (v View) mayReplace(old Member) error {
	if v.Approved[old.Name] {
		return nil
	}
	if ago := v.Now.Sub(v.lastHeard(old.ID)); ago < v.Policy.ReplaceGrace {
		return &NameTakenError{Name: old.Name, ID: old.ID, Heard: max(ago, 0), Grace: v.Policy.ReplaceGrace}
	}
	if v.Policy.ReplaceManual {
		return &ReplaceManualError{Name: old.Name, ID: old.ID}
	}
	times := 0
	for _, t := range v.Roster.Tombstones {
		if t.Name == old.Name && v.Now.UnixMilli()-t.RemovedAt < replaceWithin.Milliseconds() {
			times++
		}
	}
	if times >= replaceLimit {
		return &ReplaceFlappingError{Name: old.Name, Times: times, Limit: replaceLimit, Within: replaceWithin}
	}
	return nil
}

// lastHeard is when a member was last heard of, or would have been if it was before this leader led.
func (v View) lastHeard(id ident.MemberID) time.Time {
	if id == v.Self {
		return v.Now
	}
	if heard := v.Seen[id].Heard; heard.After(v.Led) {
		return heard
	}
	return v.Led
}

// Bounds of what a candidate says of itself.
const (
	maxNameBytes = 255
	maxAddrBytes = 512
)

func (c Candidate) validate() error {
	switch {
	case c.Name == "" || len(c.Name) > maxNameBytes:
		return &CandidateError{"name", fmt.Sprintf("has %d bytes; want 1 to %d", len(c.Name), maxNameBytes)}
	case c.Incarnation.IsZero():
		return &CandidateError{"incarnation", "is missing"}
	}
	for _, a := range []struct{ field, addr string }{{"grpc_addr", c.GRPCAddr}, {"http_addr", c.HTTPAddr}} {
		host, port, err := net.SplitHostPort(a.addr)
		n, perr := strconv.ParseUint(port, 10, 16)
		ip := net.ParseIP(host)
		if err != nil || perr != nil || n == 0 || host == "" || len(a.addr) > maxAddrBytes || ip != nil && ip.IsUnspecified() {
			return &CandidateError{a.field, fmt.Sprintf("is %q; want the host or address that others reach it at, and a port", a.addr)}
		}
	}
	return nil
}
