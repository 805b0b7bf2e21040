package opstest

import (
	"context"
	"slices"

	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

// Membership is what a test has the verbs of membership do; nil: nothing is refused and nothing happens.
type Membership struct {
	Join    func(context.Context, membership.Candidate) (member.Admission, error)
	Promote func(name string, dryRun bool) (member.Change, error)
	Remove  func(name string, o member.RemoveOptions) (member.Change, error)
	Replace func(name string, o member.ReplaceOptions) (member.Change, error)
	Gates   []membership.Check
	Invited func(seeds []string, rejoin bool) bool

	Known      member.MembershipStatus // what the leader knows
	Tombstones []membership.Tombstone
}

// OnMembership has the verbs of membership do what f says.
func (m *Member) OnMembership(f Membership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.membership = f
}

// verbs returns what was told, or the refusal of a member that does not lead.
func (m *Member) verbs() (Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.mu.role; r.Leader != m.mu.status.ID {
		return Membership{}, &replica.NotLeaderError{Term: r.Term, Leader: r.Leader}
	}
	return m.mu.membership, nil
}

// Join implements ops.Membership.
func (m *Member) Join(ctx context.Context, c membership.Candidate) (member.Admission, error) {
	v, err := m.verbs()
	if err != nil || v.Join == nil {
		return member.Admission{}, err
	}
	return v.Join(ctx, c)
}

// PromoteMember implements ops.Membership.
func (m *Member) PromoteMember(_ context.Context, name string, dryRun bool) (member.Change, error) {
	v, err := m.verbs()
	if err != nil || v.Promote == nil {
		return member.Change{}, err
	}
	return v.Promote(name, dryRun)
}

// RemoveMember implements ops.Membership.
func (m *Member) RemoveMember(_ context.Context, name string, o member.RemoveOptions) (member.Change, error) {
	v, err := m.verbs()
	if err != nil || v.Remove == nil {
		return member.Change{}, err
	}
	return v.Remove(name, o)
}

// ReplaceMember implements ops.Membership.
func (m *Member) ReplaceMember(_ context.Context, name string, o member.ReplaceOptions) (member.Change, error) {
	v, err := m.verbs()
	if err != nil || v.Replace == nil {
		return member.Change{}, err
	}
	return v.Replace(name, o)
}

// Gates implements ops.Membership.
func (m *Member) Gates(string) []membership.Check {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.membership.Gates)
}

// Membership implements ops.Membership.
func (m *Member) Membership() (member.MembershipStatus, bool) {
	v, err := m.verbs()
	return v.Known, err == nil
}

// Invite implements ops.Membership.
func (m *Member) Invite(seeds []string, rejoin bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.membership.Invited != nil && m.mu.membership.Invited(seeds, rejoin)
}
