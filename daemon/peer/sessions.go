package peer

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

const (
	// contendFor is how long an open stream of a member may leave a ping without answer before another
	// process of the same identity takes its place. It is less than the other one waits (openTimeout).
	contendFor = 2 * time.Second
	// maxFenced bounds the lives that are remembered as fenced: the newest.
	maxFenced = 64
)

// sender is the sending half of a stream.
type sender interface{ Send(*peerpb.Frame) error }

// session is a stream that a peer has open to this member.
type session struct {
	hello  Hello
	stream sender
	done   chan struct{} // closed: the stream has ended
	fenced atomic.Bool

	ping   atomic.Uint64 // the number of the last ping
	answer chan struct{} // capacity 1: it was answered

	// sending is held by whoever sends: a stream takes one at a time.
	sending sync.Mutex
}

// sessions are the streams that peers have open, the newest of each member, and the lives that are not
// taken any more.
type sessions struct {
	sync.Mutex
	newest map[ident.MemberID]*session
	fenced []uint64
}

func (s *session) send(f *peerpb.Frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.stream.Send(f)
}

// takes looks at a frame that arrived, and refuses it where the session was fenced.
func (s *session) takes(f *peerpb.Frame) *Refusal {
	if pong := f.GetPong(); pong != 0 && pong == s.ping.Load() {
		signal(s.answer)
	}
	if s.fenced.Load() {
		return duplicate(s.hello)
	}
	return nil
}

func duplicate(h Hello) *Refusal {
	return &Refusal{Reason: ReasonDuplicate, Detail: fmt.Sprintf("two processes say that they are member %s (%s) with incarnation %s: one runs on a copy of the other's directory", h.Member, h.Name, h.Incarnation)}
}

// contend lets a member that says h open a session, if no other process of its identity is alive. One
// whose stream is open is pinged: a frame that was under way when it died is no sign of life. If it is
// silent, h takes its place; if it answers, neither of the two is taken again: which is the copy, nobody
// here can know. A process that was started later has a higher boot epoch; one with a lower is an old
// copy, and the handler's to judge.
func (s *server) contend(h Hello) *Refusal {
	for other := s.net.sessions.rival(h); other != nil; other = s.net.sessions.rival(h) {
		if !other.alive(contendFor) {
			continue // it has ended, or was fenced just now
		}
		s.net.sessions.fence(other, h)
		s.net.metrics.duplicates.Inc()
		s.net.opts.Logger.Error("two processes with one identity", slog.Any("peer", h.Member), slog.String("name", h.Name),
			slog.Uint64("boot", other.hello.BootEpoch), slog.Uint64("other_boot", h.BootEpoch))
		s.net.opts.OnDuplicate(h)
	}
	return s.net.sessions.refuses(h)
}

// alive pings s. A session that does not answer for as long as patience is fenced: what it sends after
// all is not taken.
func (s *session) alive(patience time.Duration) bool {
	select {
	case <-s.answer: // to an earlier ping
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	// A stream that broke says so through done.
	_ = s.send(&peerpb.Frame{Ping: s.ping.Add(1)})
	select {
	case <-s.answer:
		return true
	case <-s.done:
	case <-timer.C:
		s.fenced.Store(true)
	}
	return false
}

// rival returns the open session of another process with the identity of h, or nil.
func (all *sessions) rival(h Hello) *session {
	all.Lock()
	defer all.Unlock()
	return all.rivalLocked(h)
}

// rivalLocked is rival. REQUIRES: the lock held.
func (all *sessions) rivalLocked(h Hello) *session {
	old := all.newest[h.Member]
	if old == nil || mutantTwoSessions || old.fenced.Load() || old.hello.Cluster != h.Cluster || old.hello.Incarnation != h.Incarnation ||
		old.hello.Life == h.Life || old.hello.Life == 0 || h.Life == 0 || h.BootEpoch < old.hello.BootEpoch {
		return nil
	}
	return old
}

// refuses a life that was fenced.
func (all *sessions) refuses(h Hello) *Refusal {
	all.Lock()
	defer all.Unlock()
	if slices.Contains(all.fenced, h.Life) { // 0 never is
		return duplicate(h)
	}
	return nil
}

// fence takes neither life again.
func (all *sessions) fence(old *session, h Hello) {
	old.fenced.Store(true)
	all.Lock()
	defer all.Unlock()
	all.fenced = append(all.fenced, old.hello.Life, h.Life)
	all.fenced = all.fenced[max(0, len(all.fenced)-maxFenced):]
}

// open makes a session of h the newest of its member. It fails where another process, or a fence, came
// first since contend: the caller asks again.
func (all *sessions) open(h Hello, stream sender) (*session, bool) {
	s := &session{hello: h, stream: stream, answer: make(chan struct{}, 1), done: make(chan struct{})}
	all.Lock()
	defer all.Unlock()
	if all.rivalLocked(h) != nil || slices.Contains(all.fenced, h.Life) {
		return nil, false
	}
	if all.newest == nil {
		all.newest = map[ident.MemberID]*session{}
	}
	all.newest[h.Member] = s
	return s, true
}

// end ends s.
func (all *sessions) end(s *session) {
	all.Lock()
	if all.newest[s.hello.Member] == s {
		delete(all.newest, s.hello.Member)
	}
	all.Unlock()
	close(s.done)
}
