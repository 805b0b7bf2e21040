package membership

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
)

// UnknownMemberError: the roster has no member of this name.
type UnknownMemberError struct{ Name string }

func (e *UnknownMemberError) Error() string { return fmt.Sprintf("no member is named %q", e.Name) }

// UnsafeError refuses a change for the checks that failed.
type UnsafeError struct {
	Verb   string // "remove", "promote"
	Name   string
	Failed Check // the first that stands in the way
	Checks []Check
}

func (e *UnsafeError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Verb, e.Name, e.Failed.Detail)
}

// Removal returns every rule of the removal of members, in the order in which they are told. That of
// learners alone is always safe.
func (v View) Removal(ids ...ident.MemberID) []Check {
	var stay []uint64
	gone, alive := 0, false
	for _, id := range votersOf(v.Conf) {
		if slices.Contains(ids, ident.MemberID(id)) {
			gone++
			alive = alive || v.reachable(ident.MemberID(id))
		} else {
			stay = append(stay, id)
		}
	}
	if gone == 0 {
		return []Check{v.settled()}
	}
	last := Check{
		Code: GateLast, OK: len(stay) > 0, Measured: uint64(len(stay)), Threshold: 1, Unit: "voters",
		Detail: fmt.Sprintf("voters that stay: %d", len(stay)),
	}
	if !last.OK {
		last.Detail = "no voter would stay: the last one cannot be removed"
	}
	checks := append([]Check{last}, v.majorities(stay)...)
	var down []uint64
	for _, id := range stay {
		if alive && !v.reachable(ident.MemberID(id)) {
			down = append(down, id)
		}
	}
	rest := Check{
		Code: GateRest, OK: len(down) == 0, Measured: uint64(len(down)), Threshold: 0, Unit: "voters", Overridable: true,
		Detail: "no voter that answers goes while one that does not stays",
	}
	if !rest.OK {
		rest.Detail = "it answers, and these voters would stay and do not: " + v.names(down) + "; remove or replace them first"
	}
	return append(checks, rest, v.settled())
}

// majorities are the rules that hold for every change of the voters: those that answer now must be a
// majority of the present voters, which have to commit the change, and of the voters there will be,
// which have to go on from it.
func (v View) majorities(voters []uint64) []Check {
	present := v.majority(GatePresent, "now", votersOf(v.Conf))
	if mutantRemovalByNewSet {
		present.OK = true
	}
	return []Check{present, v.majority(GateNew, "after the change", voters)}
}

func (v View) majority(code, when string, voters []uint64) Check {
	q := countQuorum(voters, v.reachable)
	c := Check{
		Code: code, OK: len(voters) > 0 && q.Reached(), Measured: uint64(q.Up), Threshold: uint64(q.Needed), Unit: "voters",
		Detail: fmt.Sprintf("voters %s: %d; %d answer, %d are needed", when, q.Voters, q.Up, q.Needed),
	}
	if !c.OK {
		var silent []uint64
		for _, id := range voters {
			if !v.reachable(ident.MemberID(id)) {
				silent = append(silent, id)
			}
		}
		if len(silent) > 0 {
			c.Detail += "; no answer from " + v.names(silent)
		}
	}
	return c
}

// settled is the rule that changes come one after the other.
func (v View) settled() Check {
	if err := v.Busy(); err != nil {
		return Check{Code: GateSettled, Detail: err.Error()}
	}
	return Check{Code: GateSettled, OK: true, Detail: "no other change is under way"}
}

// Remove takes members out. Whether that is safe is Removal's.
func (v View) Remove(ids ...ident.MemberID) Record {
	next := v.Roster.next()
	conf := v.without(&next, nil, ids...)
	return Record{Roster: next, Conf: conf, Does: "removal"}
}

// Replacement returns the rules by which a member counts as lost when an operator says so.
func (v View) Replacement(m Member) []Check {
	ago := v.Now.Sub(v.lastHeard(m.ID))
	lost := Check{
		Code: GateLost, OK: ago >= v.Policy.ReplaceGrace, Overridable: true,
		Measured: uint64(max(ago, 0).Milliseconds()), Threshold: uint64(v.Policy.ReplaceGrace.Milliseconds()), Unit: "ms",
		Detail: fmt.Sprintf("%s was not heard of for %s", m.Name, ago.Round(time.Second)),
	}
	if !lost.OK {
		lost.Detail = fmt.Sprintf("%s was heard of %s ago; it counts as lost after %s", m.Name, max(ago, 0).Round(100*time.Millisecond), v.Policy.ReplaceGrace)
	}
	return []Check{lost}
}
