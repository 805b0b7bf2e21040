package verbs

import (
	"context"

	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// asSeen is what every answer about the cluster ends with: who gave it, and how the cluster is.
type asSeen struct {
	Observer string      `json:"observer"`
	Health   *api.Health `json:"health"` // null: the status was not read
	Quorum   *api.Quorum `json:"quorum"`
}

// seenBy says who answered; s is nil where the status was not read.
func seenBy(source client.Source, s *api.Status) asSeen {
	if s == nil {
		return asSeen{Observer: source.Member}
	}
	return asSeen{source.Member, &s.Health, &s.Quorum}
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
