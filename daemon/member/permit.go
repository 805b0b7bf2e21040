package member

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
)

// defaultReseedWindow is how long a permit to close a replica lasts.
const defaultReseedWindow = 30 * time.Second

// permission is what a leader looks at before it lets a voter close its replica.
type permission struct {
	self, asker ident.MemberID
	conf        *pb.ConfState
	// acked are the members that acknowledged within an election timeout.
	acked map[ident.MemberID]bool
	// holder closes its replica now; 0: nobody does.
	holder ident.MemberID
	// starved: the asker cannot acknowledge anything before it is installed, for the log does not reach back
	// to where it is.
	starved bool
}

// refused says why the asker must not close its replica now; empty: it may. Its log is sound, and stays, so
// it misses what a restart would miss. That leaves a majority without it, or there is none without it
// anyway: of two voters both are needed, whatever is done. One that is starved is waited for: where its
// acknowledgement is needed, nothing else brings it about.
func (p permission) refused() string {
	switch {
	case p.holder != 0 && p.holder != p.asker && !mutantTwoRecycles:
		return fmt.Sprintf("member %s is being installed: one at a time", p.holder)
	case p.starved:
		return ""
	case len(p.conf.GetVoters()) <= 2 && len(p.conf.GetVotersOutgoing()) == 0:
		return ""
	}
	q := membership.QuorumOf(p.conf, func(id ident.MemberID) bool {
		return id != p.asker && (id == p.self || p.acked[id])
	})
	if !q.Reached() {
		return fmt.Sprintf("without it %d of %d voters acknowledge, %d are needed", q.Up, q.Voters, q.Needed)
	}
	return ""
}

// permits remembers, on a leader, who may have its replica closed.
type permits struct {
	mu struct {
		sync.Mutex
		holder ident.MemberID
		term   uint64 // in which it was given: it ends with it
		until  time.Time
	}
}

// give gives a permit of term for window, unless refused says why not: it is told who holds one, 0 where
// nobody does. Nobody is given one between the question and the answer.
func (p *permits) give(to ident.MemberID, term uint64, now time.Time, window time.Duration, refused func(holder ident.MemberID) string) (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	holder := p.mu.holder
	if p.mu.term != term || !now.Before(p.mu.until) {
		holder = 0
	}
	if why = refused(holder); why == "" {
		p.mu.holder, p.mu.term, p.mu.until = to, term, now.Add(window)
	}
	return why
}

// opened ends the permit of a member whose replica is open again.
func (p *permits) opened(id ident.MemberID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.holder == id {
		p.mu.holder = 0
	}
}

// Permit says whether a voter may close its replica to have its data replaced, as the leader sees it.
func (m *Member) Permit(_ context.Context, r peer.PermitRequest) (peer.PermitReply, error) {
	if refusal := m.refuse(r.Hello); refusal != nil {
		return peer.PermitReply{}, refusal
	}
	g := m.taking(r.Group)
	if g == nil {
		return peer.PermitReply{}, fmt.Errorf("group %s is not open on %s", r.Group, m.opts.Name)
	}
	s := g.replica.Status()
	if s.State != raft.StateLeader {
		return peer.PermitReply{}, &replica.NotLeaderError{Term: s.Term, Leader: s.Leader}
	}
	p := permission{self: m.identity().ID, asker: r.Hello.Member, conf: s.Conf, acked: map[ident.MemberID]bool{}}
	for _, x := range s.Progress {
		p.acked[x.ID] = x.Active
		p.starved = p.starved || x.ID == p.asker && x.State == tracker.StateSnapshot
	}
	why := g.keeper.permits.give(p.asker, s.Term, m.opts.Now(), m.reseedWindow(), func(holder ident.MemberID) string {
		p.holder = holder
		return p.refused()
	})
	if why != "" {
		return peer.PermitReply{Refused: why, Term: s.Term}, nil
	}
	return peer.PermitReply{Granted: true, Term: s.Term, Window: m.reseedWindow()}, nil
}

func (m *Member) reseedWindow() time.Duration {
	if m.opts.ReseedWindow == 0 {
		return defaultReseedWindow
	}
	return m.opts.ReseedWindow
}
