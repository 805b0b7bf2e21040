package httpd

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

const (
	// answerTravel is how much longer a member waits for the answer to a request that it forwarded than
	// the caller gave: then it is the other one that says what became of it.
	answerTravel = time.Second
	// answerReserve is what it keeps for that of the time that it gives by itself.
	answerReserve = 500 * time.Millisecond

	// maxGiven is the longest time that a caller's header may name; the routes have their own bounds.
	maxGiven = 24 * time.Hour
)

// overdueError ends what goes on longer than the caller gave.
type overdueError struct {
	given time.Duration
	reads bool // the request changes nothing
}

func (e *overdueError) Error() string {
	return fmt.Sprintf("the %s that the caller gave are over", e.given)
}

// Timeout reports true, as of any error of its kind.
func (*overdueError) Timeout() bool { return true }

// problem is what it is on the wire.
func (e *overdueError) problem(detail string) *api.Problem {
	if e.reads {
		return api.NewProblem(api.CodeReadTimeout, detail)
	}
	return api.NewProblem(api.CodeOutcomeUnknown, detail+"; it may still happen")
}

// bound ends the request's context when the time is over that the caller gave, if it gave one.
func (r *request) bound() (stop func(), err error) {
	text := r.Header.Get(api.HeaderTimeout)
	if text == "" {
		return func() {}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 1 || ms > maxGiven.Milliseconds() {
		return nil, badField(api.HeaderTimeout, "is %s; want 1 to %d, in milliseconds", quoted(text), maxGiven.Milliseconds())
	}
	given := time.Duration(ms) * time.Millisecond
	r.caller, r.until = r.Context(), time.Now().Add(given)
	ctx, cancel := context.WithTimeoutCause(r.caller, given, &overdueError{given: given, reads: r.Method == http.MethodGet})
	r.Request = r.WithContext(ctx)
	return cancel, nil
}

// forwarding is the context of the request that r is forwarded with, without the caller's own time.
func (r *request) forwarding() context.Context {
	if r.caller != nil {
		return r.caller
	}
	return r.Context()
}

// times says how long to wait for the answer to a request that is forwarded, and how long to give the member
// that gets it: as much as is left of the caller's time, and most at most.
func times(left, most time.Duration) (wait, give time.Duration) {
	wait = most
	if left != 0 {
		wait = min(most, max(left, 0)+answerTravel)
	}
	give = wait - min(wait/2, answerReserve)
	if left != 0 {
		give = min(give, max(left, time.Millisecond))
	}
	return wait, give
}

// left is what is left of the caller's time; 0: it gave none. Less than nothing is left of one that is over.
func (r *request) left() time.Duration {
	if r.until.IsZero() {
		return 0
	}
	return cmp.Or(time.Until(r.until), -1)
}

// give tells the member that gets a request how long there is.
func give(h http.Header, d time.Duration) {
	h[api.HeaderTimeout] = []string{strconv.FormatInt(max(d.Milliseconds(), 1), 10)}
}
