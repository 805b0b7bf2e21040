package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

const (
	// streamIdle is how long a stream may be silent: a member sends a heartbeat every five seconds.
	streamIdle = 15 * time.Second

	// The pauses between two attempts to follow a member.
	followAgain    = 100 * time.Millisecond
	followAgainMax = 2 * time.Second

	// maxLineBytes bounds one event.
	maxLineBytes = 1 << 20
)

// Place is a member and where it can be asked.
type Place struct {
	Member    string
	endpoints []*url.URL // at least one; those that the client was given come first
}

// placesGrace is how long Places waits for the other endpoints once it has a roster.
const placesGrace = 500 * time.Millisecond

// Places finds every member of the cluster: it asks all endpoints at once who they are and takes the
// addresses of those that none of them is from the roster. It returns placesGrace after the first answer,
// and in EndpointTimeout without one, with the members by name; the error is that of a read.
func (c *Client) Places(ctx context.Context) ([]Place, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, min(EndpointTimeout, c.timeout))
	defer cancel()
	answers := make([]outcome[api.Members], len(c.endpoints))
	var asked sync.WaitGroup
	var first sync.Once
	var grace *time.Timer // set by first
	for i, endpoint := range c.endpoints {
		asked.Go(func() {
			start := time.Now()
			header, body, err := c.fetch(ctx, endpoint.JoinPath("/cluster/members"))
			a := outcome[api.Members]{endpoint: i, err: err, took: time.Since(start)}
			if err == nil {
				a.source.Member = header.Get(api.HeaderMember)
				if err := json.Unmarshal(body, &a.value); err != nil {
					a.err = &foreignError{fmt.Sprintf("the answer is not what /cluster/members answers: %v", err)}
				}
			}
			answers[i] = a
			if a.err == nil {
				first.Do(func() { grace = time.AfterFunc(placesGrace, cancel) })
			}
		})
	}
	asked.Wait()
	if grace != nil {
		grace.Stop()
	}
	if err := context.Cause(caller); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	places := c.places(answers)
	if len(places) == 0 {
		return nil, verdict(c.Endpoints(), answers)
	}
	return places, nil
}

// places sorts what the endpoints answered by member.
func (c *Client) places(answers []outcome[api.Members]) []Place {
	at := map[string][]*url.URL{}
	add := func(member string, u *url.URL) {
		if !slices.ContainsFunc(at[member], func(have *url.URL) bool { return have.String() == u.String() }) {
			at[member] = append(at[member], u)
		}
	}
	for _, a := range answers {
		if a.err == nil {
			add(a.source.Member, c.endpoints[a.endpoint])
		}
	}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for _, m := range a.value.Roster.Members {
			add(m.Name, &url.URL{Scheme: c.endpoints[a.endpoint].Scheme, Host: m.HTTPAddr})
		}
	}
	var places []Place
	for member, endpoints := range at {
		places = append(places, Place{member, endpoints})
	}
	slices.SortFunc(places, func(a, b Place) int { return bytes.Compare([]byte(a.Member), []byte(b.Member)) })
	return places
}

// EventQuery chooses events of one member: the first Limit after After, or the newest Limit where
// After is empty.
type EventQuery struct {
	After string
	Limit int
}

func (q EventQuery) values() url.Values {
	v := url.Values{"limit": {strconv.Itoa(q.Limit)}}
	if q.After != "" {
		v.Set("after", q.After)
	}
	return v
}

// Events reads what one member saw, oldest first. Where the member does not reach back to After any
// more, the first event says so (api.EventsLost), and what it still has follows. Errors: *ProblemError,
// *UnreachableError.
func (c *Client) Events(ctx context.Context, p Place, q EventQuery) ([]api.Event, error) {
	tried := make([]Attempt, 0, len(p.endpoints))
	for _, endpoint := range p.endpoints {
		start := time.Now()
		events, err := c.eventsAt(ctx, endpoint, p.Member, q)
		if problem, ok := errors.AsType[*ProblemError](err); ok {
			if problem.Problem.Code != api.CodeCompacted || problem.Problem.Floor == "" {
				return nil, problem
			}
			lost := lostEvent(p.Member, q.After, problem.Problem)
			events, err = c.eventsAt(ctx, endpoint, p.Member, EventQuery{After: lost.ID, Limit: q.Limit})
			if len(events) > 0 {
				lost.At = events[0].At // it stands before them, whatever the clocks say
			}
			events = append([]api.Event{lost}, events...)
		}
		if err == nil {
			return events, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		tried = append(tried, classify(endpoint.String(), err, time.Since(start)))
	}
	return nil, &UnreachableError{Tried: tried}
}

func (c *Client) eventsAt(ctx context.Context, endpoint *url.URL, member string, q EventQuery) ([]api.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, min(EndpointTimeout, c.timeout))
	defer cancel()
	target := endpoint.JoinPath("/cluster/events")
	target.RawQuery = q.values().Encode()
	header, body, err := c.fetch(ctx, target)
	if err != nil {
		return nil, err
	}
	if have := header.Get(api.HeaderMember); have != member {
		return nil, &foreignError{fmt.Sprintf("%s answers there, not %s", have, member)}
	}
	var events []api.Event
	for dec := json.NewDecoder(bytes.NewReader(body)); dec.More(); {
		var e api.Event
		if err := dec.Decode(&e); err != nil {
			return nil, &foreignError{fmt.Sprintf("the answer is not what /cluster/events answers: %v", err)}
		}
		events = append(events, e)
	}
	return events, nil
}

// lostEvent says in the place of the events that a member does not keep any more that they are
// missing.
func lostEvent(member, after string, p *api.Problem) api.Event {
	fields, err := json.Marshal(map[string]string{"after": after, "floor": p.Floor})
	if err != nil { // strings cannot fail
		panic(err)
	}
	return api.Event{ID: p.Floor, At: time.Now().UTC(), Member: member, Kind: api.EventsLost, Level: "warn", Text: p.Detail, Fields: fields}
}

// FollowEvents hands every event of one member to handle as it comes, beginning as Events does. A
// connection that is lost is resumed after the last event, through the next endpoint of the member;
// lost is told why. Heartbeats are not handed on. It returns the error of handle, the cause of ctx, or
// a *ProblemError that asking again does not help.
func (c *Client) FollowEvents(ctx context.Context, p Place, q EventQuery, handle func(api.Event) error, lost func(error)) error {
	pause := followAgain
	for try := 0; ; try++ {
		endpoint := p.endpoints[try%len(p.endpoints)]
		start := time.Now()
		var failed error // of handle
		err := c.stream(ctx, endpoint, p.Member, q, func(e api.Event) error {
			pause, q.After = followAgain, e.ID
			if e.Kind != api.EventHeartbeat {
				failed = handle(e)
			}
			return failed
		})
		if failed != nil {
			return failed
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if problem, ok := errors.AsType[*ProblemError](err); ok {
			switch {
			case problem.Problem.Code == api.CodeCompacted && problem.Problem.Floor != "":
				e := lostEvent(p.Member, q.After, problem.Problem)
				if err := handle(e); err != nil {
					return err
				}
				q.After = e.ID
				try-- // the endpoint is right
				continue
			case !problem.otherMayAnswer():
				return problem
			}
			lost(problem)
		} else {
			lost(&UnreachableError{Tried: []Attempt{classify(endpoint.String(), err, time.Since(start))}})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause + rand.N(pause)):
		}
		pause = min(2*pause, followAgainMax)
	}
}

// errStreamEnded: the member has no more to say, because it is stopping.
var errStreamEnded = errors.New("the member ended the stream")

// errStreamIdle: not even a heartbeat came.
var errStreamIdle = fmt.Errorf("nothing came for %s", streamIdle)

// stream reads one stream to its end, and returns why it ended.
func (c *Client) stream(ctx context.Context, endpoint *url.URL, member string, q EventQuery, handle func(api.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(streamIdle, func() { cancel(errStreamIdle) })
	defer idle.Stop()

	target := endpoint.JoinPath("/cluster/events")
	v := q.values()
	v.Set("follow", "true")
	target.RawQuery = v.Encode()
	resp, err := c.send(ctx, target, api.NDJSONType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if have := resp.Header.Get(api.HeaderMember); have != member {
		return &foreignError{fmt.Sprintf("%s answers there, not %s", have, member)}
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		idle.Reset(streamIdle)
		var e api.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			if !lines.Scan() && lines.Err() != nil { // the connection broke within the line
				return lines.Err()
			}
			return &foreignError{fmt.Sprintf("a line is not an event: %v", err)}
		}
		if err := handle(e); err != nil {
			return err
		}
	}
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case lines.Err() != nil:
		return lines.Err()
	}
	return errStreamEnded
}
