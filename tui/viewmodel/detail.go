package viewmodel

import (
	"fmt"
	"strings"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// fields tells everything about the member at the cursor.
func (b *builder) fields() {
	if b.out.Cursor < 0 {
		return
	}
	st, m := b.good.Status, b.out.Members[b.out.Cursor]
	var r *api.Region
	for i := range st.Regions {
		if st.Regions[i].Name == m.Name {
			r = &st.Regions[i]
		}
	}
	if r == nil { // a row without a name
		return
	}
	c := conditionOf(r, findings(st)[r.Name])
	mark := b.mark()
	field := func(label, format string, args ...any) {
		b.out.Detail = append(b.out.Detail, Field{Label: label, Value: fmt.Sprintf(format, args...)})
	}
	state := m.State
	if state == "" {
		state = m.Reach
	}
	b.out.Detail = append(b.out.Detail, Field{Label: "state", Value: state, Severity: c.severity()})
	if b.out.Fresh != Stale { // what it was is not what it is
		field("means", "%s", meaning(c, r))
	}
	if note := Note(*r); note != "" {
		b.out.Detail = append(b.out.Detail, Field{Label: "says", Value: note, Severity: c.severity()})
	}
	field("role", "%s", m.Role)
	field("at", "http %s, grpc %s", words.Or(r.HTTPAddr), words.Or(r.GRPCAddr))
	number := func(n *uint64) string {
		if n == nil {
			return words.Unknown
		}
		return mark + words.Count(*n)
	}
	field("lag", "%s entries, %s", m.Lag, m.Delay)
	field("log", "applied %s, committed %s, durable %s, last %s, term %s",
		m.Applied, number(r.CommitIndex), number(r.DurableIndex), number(r.LastIndex), number(r.Term))
	if seen := Seen(*r, st.At); seen != "" {
		field("answered", "not now, %s", seen)
	} else if r.IsLeader {
		field("answered", "in %s", m.Took)
	} else {
		field("answered", "in %s, heard the leader %s ago", m.Took, m.Heard)
	}
	field("up", "%s, boot %s", words.AgeOf(r.UptimeMS), words.CountOf(r.BootEpoch))
	incarnation := words.Unknown
	if r.Incarnation != nil {
		incarnation = words.Or(*r.Incarnation)
	}
	field("is", "id %s, incarnation %s", words.Or(r.ID), incarnation)
	field("runs", "version %s, capabilities %s", m.Version, words.Or(strings.Join(r.Capabilities, " ")))
	field("more", "tidalctl members show %s", quote(m.Name))
}

// meaning explains a condition to who sees it for the first time.
func meaning(c condition, r *api.Region) string {
	switch c {
	case quarantined:
		if r.Quarantine.Votes {
			return "it must not serve: its state cannot be trusted. Its log is sound, so it votes; it is installed again by itself."
		}
		return "it must not serve or vote: what is on its disk cannot be trusted. The disk is kept as it is."
	case down:
		return "it does not answer: the process is gone, or the network to it is. It does not vote."
	case downLearner:
		return "it does not answer. It has no vote, so writes go on as before."
	case cutOff:
		return "it answers, but has not heard a leader for too long: the network between members is suspect."
	case fullDisk:
		return "its disk is almost full, so it takes no writes; make room, or give it a larger disk."
	case reseeding:
		return "its data is to be replaced by that of another member. Until then it serves what it has, and votes."
	case notReady:
		return "it runs and is not yet fit to serve reads."
	case behind:
		return "it lacks many entries that the leader has; reads here are old."
	case promoting:
		return "it catches up, and the leader makes it a voter by itself. tidalctl why says which gate is closed."
	case stuck:
		return "it is a learner that does not become a voter by itself soon. tidalctl why says which gate is closed."
	case slow:
		return "it takes long to answer: a busy machine or a slow network."
	case leading:
		return "all writes pass through it."
	case gone:
		return "it is no member anymore."
	}
	return "nothing is wrong with it."
}
