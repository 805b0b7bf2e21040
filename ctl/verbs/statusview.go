package verbs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/words"
)

func statusDocument(s api.Status) output.Document {
	names := make([]string, len(s.Regions))
	for i, r := range s.Regions {
		names[i] = r.Name
	}
	return output.Document{
		Kind: "status", Value: s, Names: names,
		View: func(wide bool) output.View { return statusView(s, wide) },
	}
}

// statusView is the status for people. Members that disagree about the leader are shown as sides, a
// table each, and never averaged.
func statusView(s api.Status, wide bool) output.View {
	v := output.View{
		Level:    words.Or(s.Health.Level),
		Headline: headline(s.Quorum, s.Leader, s.Term),
		Notes:    reasons(s.Health.Reasons),
	}
	if s.RelayLogAgeMS != nil {
		v.Notes = append(v.Notes, fmt.Sprintf("the leader's last index, %s, was heard %s ago", words.CountOf(s.RelayLogLen), words.AgeOf(s.RelayLogAgeMS)))
	}
	if s.Settling != nil {
		v.Notes = append(v.Notes, settlingText(*s.Settling))
	}
	for _, t := range s.Tombstones {
		v.Notes = append(v.Notes, fmt.Sprintf("removed  %s, member %s: %s", t.Name, t.ID, tombstoneText(t)))
	}
	v.Notes = append(v.Notes, "seen from "+words.Or(s.Observer)+", cluster "+words.Or(s.ClusterID)+", last index "+words.CountOf(s.RelayLogLen))
	if len(s.Views) == 0 {
		v.Sections = []output.Section{memberRows("", s.Regions, s.At, wide)}
		return v
	}
	if !s.Consistent {
		v.Headline = headlineOf(s.Quorum) + "  members disagree about the leader"
	}
	rest := slices.Clone(s.Regions)
	for _, side := range s.Views {
		var rows []api.Region
		rest = slices.DeleteFunc(rest, func(r api.Region) bool {
			if !slices.Contains(side.Members, r.Name) {
				return false
			}
			rows = append(rows, r)
			return true
		})
		title := fmt.Sprintf("side of %s, term %d: %d of %d members", leaderName(side.Leader), side.Term, len(rows), len(s.Regions))
		v.Sections = append(v.Sections, memberRows(title, rows, s.At, wide))
	}
	if len(rest) > 0 {
		v.Sections = append(v.Sections, memberRows("on no side", rest, s.At, wide))
	}
	return v
}

// headline is what follows the level in the first line: what is up, what can be lost, who leads.
func headline(q api.Quorum, leader *string, term uint64) string {
	s := headlineOf(q) + "  no leader"
	if leader != nil {
		s = headlineOf(q) + "  leader " + *leader
	}
	if term == 0 { // nobody ever voted
		return s + "  term " + words.Unknown
	}
	return s + "  term " + fmt.Sprint(term)
}

// headlineOf is the part about the quorum. A cluster without a voter is one that is not known yet.
func headlineOf(q api.Quorum) string {
	if q.Voters == 0 {
		return "? voters up, can lose ?"
	}
	s := fmt.Sprintf("%d of %d voters up", q.Up, q.Voters)
	if q.Up < q.Needed {
		s += fmt.Sprintf(" but %d needed", q.Needed)
	}
	return s + fmt.Sprintf(", can lose %d", q.Spare)
}

// tombstoneText says how far a removed member knows of it.
func tombstoneText(t api.Tombstone) string {
	switch {
	case t.Expired:
		return "expired, it was never heard of"
	case t.Told:
		return "it was told, and has not confirmed"
	}
	return "it was not told yet: it does not answer"
}

func leaderName(leader *string) string {
	if leader == nil {
		return "no leader"
	}
	return *leader
}

// reasons makes a line of each finding: its code, whom it concerns, what was seen.
func reasons(list []api.Reason) []string {
	var lines []string
	for _, r := range list {
		lines = append(lines, strings.Join(slices.DeleteFunc([]string{r.Code, r.Member, r.Detail}, func(s string) bool { return s == "" }), "  "))
	}
	return lines
}

// memberRows makes the table of members as they were at a time, in the order given. NOTE stands last: it is what a narrow
// terminal cuts.
func memberRows(title string, regions []api.Region, at time.Time, wide bool) output.Section {
	s := output.Section{Title: title, Columns: []output.Column{
		{Title: "member"}, {Title: "role"}, {Title: "state"}, {Title: "applied", Right: true}, {Title: "lag", Right: true}, {Title: "heard", Right: true},
	}}
	if wide {
		s.Columns = append(s.Columns,
			output.Column{Title: "id", Right: true}, output.Column{Title: "term", Right: true}, output.Column{Title: "last", Right: true},
			output.Column{Title: "durable", Right: true}, output.Column{Title: "commit", Right: true}, output.Column{Title: "took", Right: true},
			output.Column{Title: "uptime", Right: true}, output.Column{Title: "boot", Right: true}, output.Column{Title: "version"},
			output.Column{Title: "http"}, output.Column{Title: "grpc"})
	}
	s.Columns = append(s.Columns, output.Column{Title: "note"})
	for _, r := range regions {
		row := []string{words.Or(r.Name), viewmodel.Role(r), stateOf(r), viewmodel.Applied(r), viewmodel.Lag(r), viewmodel.Heard(r)}
		if wide {
			row = append(row, words.Or(r.ID), words.CountOf(r.Term), words.CountOf(r.LastIndex), words.CountOf(r.DurableIndex), words.CountOf(r.CommitIndex),
				words.AgeOf(r.TookMS), words.AgeOf(r.UptimeMS), words.CountOf(r.BootEpoch), orUnknown(r.Version), words.Or(r.HTTPAddr), words.Or(r.GRPCAddr))
		}
		note := viewmodel.Note(r)
		if seen := viewmodel.Seen(r, at); seen != "" {
			note = seen + "; " + note
		}
		s.Rows = append(s.Rows, append(row, note))
	}
	return s
}

// stateOf is one word for what is wrong with a member, worst first.
func stateOf(r api.Region) string {
	switch {
	case r.Role == api.RoleRemoved:
		return "removed"
	case !r.Reachable:
		return "down"
	case r.Quarantine != nil:
		return "quarantined"
	case r.Partitioned:
		return "partitioned"
	case r.Ready != nil && !*r.Ready:
		return "not-ready"
	}
	return "up"
}

func orUnknown(s *string) string {
	if s == nil {
		return words.Unknown
	}
	return words.Or(*s)
}
