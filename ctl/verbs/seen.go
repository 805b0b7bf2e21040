package verbs

import (
	"context"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// howItIs is how the cluster is, in an answer about something else.
type howItIs struct {
	Health *api.Health `json:"health"` // null: the status was not read
	Quorum *api.Quorum `json:"quorum"`
}

// healthOf is how the cluster is by a status; nil where that was not read.
func healthOf(s *api.Status) howItIs {
	if s == nil {
		return howItIs{}
	}
	return howItIs{&s.Health, &s.Quorum}
}

// asSeen is what an answer of one member ends with: who gave it, and how the cluster is.
type asSeen struct {
	Observer string `json:"observer"`
	howItIs
}

// seenBy says who answered; s is nil where the status was not read.
func seenBy(source client.Source, s *api.Status) asSeen {
	return asSeen{source.Member, healthOf(s)}
}

// reading is one command that reads something of the cluster and prints it below the cluster's health. C is what it
// needs of the members, T what they answer.
type reading[C statusReader, T any] struct {
	NotRead  string // what did not happen
	Client   func() (C, error)
	Read     func(context.Context, C) (T, client.Source, error)
	Document func(T, client.Source, *api.Status) output.Document
}

func (r reading[C, T]) run(ctx context.Context, out *output.Printer) error {
	c, err := r.Client()
	if err != nil {
		return ctl.Failed(r.NotRead, err)
	}
	answer, source, err := r.Read(ctx, c)
	if err != nil {
		return ctl.Failed(r.NotRead, err)
	}
	return out.Print(r.Document(answer, source, health(ctx, c)))
}

// health reads the status for the first line; nil where it cannot.
func health(ctx context.Context, c statusReader) *api.Status {
	s, _, err := c.Status(ctx)
	if err != nil {
		return nil
	}
	return &s
}

// headOf is the first line, of a status that may be missing.
func headOf(s *api.Status) output.View {
	if s == nil {
		return healthView(nil, nil, nil, 0)
	}
	return healthView(&s.Health, &s.Quorum, s.Leader, s.Term)
}

// standing is how the cluster is, in the line that stands first above a question.
func standing(s api.Status) string {
	return s.Health.Level + ", " + headline(s.Quorum, s.Leader, s.Term)
}

// notAnswered stands there where it is not known.
func notAnswered(err error) string { return "The cluster did not answer: " + err.Error() }
