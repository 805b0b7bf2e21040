package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/replica"
)

// leaderPoll is how often a request that waits for a leader looks for one.
const leaderPoll = 10 * time.Millisecond

// onLeader runs a request on the leader: here, or by forwarding it whole.
func (s *Server) onLeader(w http.ResponseWriter, r *request, h handler) error {
	return s.lead(r, func() error { return h(w, r) }, func(l ops.Leader) error {
		ctx := r.forwarding()
		if r.within == 0 { // a verb that waits may move leadership itself
			followed, stop := follow(ctx, l, s.ops.Leader)
			defer stop()
			ctx = followed
		}
		a, err := s.client.forward(ctx, s.ops.Cluster().String(), l.HTTPAddr, r.Request, r.body, r.left(), r.within)
		s.metrics.forwarded(a, err)
		if err != nil {
			return err
		}
		if a.status == http.StatusMisdirectedRequest {
			return errNotLeader
		}
		relay(w, a)
		return nil
	})
}

// lead does something on the leader, once: here, if this member leads, or by asking the leader there.
//
// What certainly had no effect is tried again, for LeaderWait: no leader is known, it cannot be
// reached (*unreachedError), or it does not lead (*replica.NotLeaderError). So an application sees an
// election as a slow write. As soon as anything of a request was sent and no whole answer came, the
// answer is outcome_unknown.
func (s *Server) lead(r *request, here func() error, there func(ops.Leader) error) error {
	deadline := time.Now().Add(s.opts.LeaderWait)
	var tried ops.Leader // did not take the request; the same view of it is not asked again
	var refusal error    // why
	for {
		l, err := s.ops.Leader()
		if err != nil {
			return err
		}
		switch {
		case l.Self:
			err := here()
			if _, moved := errors.AsType[*replica.NotLeaderError](err); !moved || r.marked || mayHaveHappened(err) {
				return err
			}
			tried, refusal = l, noLeader(l)
		case r.marked && !mutantMarkedForwarded:
			return &replica.NotLeaderError{Term: l.Term, Leader: l.ID}
		case l.ID == 0:
			refusal = noLeader(l)
		case l == tried: // nothing new
		case l.HTTPAddr == "":
			refusal = api.NewProblem(api.CodeLeaderUnreached, fmt.Sprintf("the roster here does not know member %s, which leads term %d", l.ID, l.Term))
		default:
			err := there(l)
			tried = l
			if _, moved := errors.AsType[*replica.NotLeaderError](err); moved {
				refusal = noLeader(l)
			} else if unreached, ok := errors.AsType[*unreachedError](err); ok {
				refusal = leaderUnreached(l, unreached)
			} else {
				return err
			}
		}
		if !waitUntil(r.Context(), deadline, leaderPoll) {
			return refusal
		}
	}
}

// What is under way to a leader that leads no more, because it was paused, or cut off, is not waited for
// as long as any request: the others have gone on.
const (
	followEvery = 100 * time.Millisecond
	// lastWord is how long it may still say what became of the request: it may have been on its way.
	lastWord = time.Second
)

// movedError is why a request to the leader was given up.
type movedError struct{ was, now ops.Leader }

func (e *movedError) Error() string {
	if e.now.ID == 0 || e.now.ID == e.was.ID {
		return fmt.Sprintf("%s led term %d and is not heard any more", e.was.Name, e.was.Term)
	}
	return fmt.Sprintf("%s led term %d; since then %s leads, term %d", e.was.Name, e.was.Term, e.now.Name, e.now.Term)
}

// follow returns a context that ends with a *movedError once l has not led for lastWord, as leader tells
// it. stop ends it and waits for what it started.
func follow(ctx context.Context, l ops.Leader, leader func() (ops.Leader, error)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	first := time.AfterFunc(followEvery, func() { // hardly any request lives that long
		defer close(ended)
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for led := time.Now(); ; {
			now, err := leader()
			switch {
			case err == nil && now.ID == l.ID && now.Term == l.Term:
				led = time.Now()
			case time.Since(led) >= lastWord:
				cancel(&movedError{was: l, now: now})
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		if !first.Stop() {
			<-ended
		}
	}
}

// mayHaveHappened reports whether a request that failed here was proposed: then it is not asked again.
func mayHaveHappened(err error) bool {
	_, unknown := errors.AsType[*replica.UnknownOutcomeError](err)
	return unknown
}

// onMember runs a request on the member called name: here, or by forwarding it once.
func (s *Server) onMember(w http.ResponseWriter, r *request, name string, h handler) error {
	addr, self, err := s.ops.Find(name)
	if err != nil {
		return err
	}
	if self {
		return h(w, r)
	}
	if r.marked {
		return api.NewProblem(api.CodeNotLeader, fmt.Sprintf("this request is for %s", name))
	}
	if r.Method != http.MethodGet { // nobody could say later what a member did that takes it and is silent
		if err := s.ops.Awake(r.Context(), name, addr); err != nil {
			return err
		}
	}
	a, err := s.client.forward(r.forwarding(), s.ops.Cluster().String(), addr, r.Request, r.body, r.left(), r.within)
	s.metrics.forwarded(a, err)
	if unreached, ok := errors.AsType[*unreachedError](err); ok {
		return api.NewProblem(api.CodeMemberUnreached, fmt.Sprintf("%s was not reached at %s: %s", name, unreached.Addr, reasonOf(unreached.Err)))
	}
	if lost, ok := errors.AsType[*lostError](err); ok && r.Method == http.MethodGet { // a read has no outcome to be unsure of
		return silent(name, lost)
	}
	if err != nil {
		return err
	}
	relay(w, a)
	return nil
}

// silent is the problem of a question that changes nothing, which the member called name did not answer.
func silent(name string, lost *lostError) *api.Problem {
	return api.NewProblem(api.CodeMemberUnreached, fmt.Sprintf("%s at %s did not answer: %s", name, lost.Addr, reasonOf(lost.Err)))
}

func noLeader(l ops.Leader) *api.Problem {
	if l.ID == 0 {
		return api.NewProblem(api.CodeNoLeader, fmt.Sprintf("no leader is known in term %d", l.Term))
	}
	return api.NewProblem(api.CodeNoLeader, fmt.Sprintf("%s led term %d and does not any more; no other leader is known", l.Name, l.Term))
}

func leaderUnreached(l ops.Leader, err *unreachedError) *api.Problem {
	p := api.NewProblem(api.CodeLeaderUnreached, fmt.Sprintf("%s leads term %d and was not reached at %s: %s", l.Name, l.Term, err.Addr, reasonOf(err.Err)))
	p.Leader = l.Name
	return p
}

// waitUntil pauses for d; it reports false when deadline has passed or the caller is gone.
func waitUntil(ctx context.Context, deadline time.Time, d time.Duration) bool {
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(min(d, left))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// relayed reports whether a header of an answer is passed on as it came.
func relayed(name string) bool {
	return name == "Content-Type" || name == "Retry-After" || strings.HasPrefix(name, "Tidal-")
}

func relay(w http.ResponseWriter, a *answer) {
	relayHeader(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // an error means that the caller is gone
}

func relayHeader(to, from http.Header) {
	for name, v := range from {
		if relayed(name) {
			to[name] = v
		}
	}
}
