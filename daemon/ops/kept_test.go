package ops

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// What is left of an operation that a restart cut short is told from the state alone, and only once it
// cannot become another one.
func TestJudge(t *testing.T) {
	t.Parallel()
	roster := func(role membership.Role, buried ...ident.MemberID) membership.Roster {
		r := membership.Roster{Version: 7, NextID: 3, Members: []membership.Member{{ID: 1, Name: "a", Role: membership.RoleVoter}}}
		if role != 0 {
			r.Members = append(r.Members, membership.Member{ID: 2, Name: "b", Role: role})
		}
		for _, id := range buried {
			r.Tombstones = append(r.Tombstones, membership.Tombstone{ID: id, Name: "b"})
		}
		return r
	}
	voter, learner := roster(membership.RoleVoter), roster(membership.RoleLearner)
	for _, tc := range []struct {
		name, verb string
		target     ident.MemberID
		f          findings
		want       string // a code, what the result says, or "" where nobody can know yet
	}{
		{"removed", "members remove", 2, findings{roster: roster(0, 2)}, "removed"},
		{"still there, and what was proposed may come", "members remove", 2, findings{roster: voter, leader: 1}, ""},
		{"still there, and nothing can come", "members remove", 2, findings{roster: voter, leader: 1, decided: true}, "interrupted"},
		{"of nobody", "members remove", 0, findings{roster: voter, leader: 1, decided: true}, ""},
		{"votes", "members promote", 2, findings{roster: voter}, "voter"},
		{"learns, and may vote yet", "members promote", 2, findings{roster: learner}, ""},
		{"learns", "members promote", 2, findings{roster: learner, leader: 1, decided: true}, "interrupted"},
		{"is gone: it may have voted", "members promote", 2, findings{roster: roster(0, 2), leader: 1, decided: true}, ""},
		{"an allowance ends with its process", "members replace", 2, findings{roster: voter}, "interrupted"},
		{"leads", "promote", 2, findings{roster: voter, leader: 2, term: 5}, "leads"},
		{"nobody leads", "promote", 2, findings{roster: voter}, ""},
		{"another one leads", "promote", 2, findings{roster: voter, leader: 1, term: 5, decided: true}, "other_leader"},
		{"faults leave no trace", "partition", 0, findings{roster: voter, leader: 1, decided: true}, ""},
		{"an exchange leaves none", "reconcile", 0, findings{roster: voter, leader: 1, decided: true}, ""},
	} {
		op := &operation{intent: intent{verb: tc.verb, id: "o", about: "b", target: tc.target}}
		result, err, settled := op.judge(tc.f)
		got := ""
		p, isProblem := errors.AsType[*api.Problem](err)
		switch r := result.(type) {
		case api.MemberChanged:
			got = r.Role
			if !r.OK || r.ID != "2" || r.Name != "b" {
				t.Errorf("%s: %+v", tc.name, r)
			}
		case api.Promoted:
			got = "leads"
			if !r.OK || *r.Leader != "b" || r.Term != tc.f.term {
				t.Errorf("%s: %+v", tc.name, r)
			}
		case nil:
			if isProblem {
				got = string(p.Code)
			}
		}
		if got != tc.want || settled != (tc.want != "") {
			t.Errorf("%s: judge = %+v, %v, %t; want %q", tc.name, result, err, settled, tc.want)
		}
	}
}

// The book is a promise: what an older binary wrote is read, what a newer one added is passed over.
func TestBook_Reads(t *testing.T) {
	t.Parallel()
	const text = `{"operations":[{"id":"o","verb":"members remove","request":"b dry_run=false override=","about":"b","target":"2",
		"started_at":"2026-03-01T12:00:00Z","newer":1},{"id":"p","verb":"promote","request":"b dry_run=false","started_at":"2026-03-01T12:00:00Z",
		"finished_at":"2026-03-01T12:00:01Z","result":{"ok":true}}]}`
	var b book
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	if o := b.Operations[0]; o.ID != "o" || o.Target != 2 || o.FinishedAt != nil || o.About != "b" {
		t.Errorf("operation %+v", o)
	}
	if o := b.Operations[1]; o.FinishedAt == nil || string(o.Result) != `{"ok":true}` || o.Target != 0 {
		t.Errorf("operation %+v", o)
	}
}
