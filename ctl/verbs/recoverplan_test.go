package verbs

import (
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// lostCluster is the view that member id has of a cluster of n voters called a, b, …
func lostCluster(n, id int, term, index uint64) api.RecoverView {
	v := api.RecoverView{
		ClusterID: "c", Group: "0", Running: true, Term: term, Last: api.EntryRef{Term: term, Index: index},
		CommitIndex: index - 2, AppliedIndex: index - 2, History: "0", Roster: api.Roster{Version: 4},
	}
	for i := 1; i <= n; i++ {
		m := api.Member{ID: string(rune('0' + i)), Name: string(rune('a' + i - 1)), Incarnation: "i" + string(rune('0'+i)), Role: api.RoleVoter, HTTPAddr: "h", GRPCAddr: "g"}
		v.Roster.Members = append(v.Roster.Members, m)
		if i == id {
			v.ID, v.Name, v.Incarnation = m.ID, m.Name, m.Incarnation
		}
	}
	return v
}

func TestMakePlan_Refuses(t *testing.T) {
	t.Parallel()
	change := func(v api.RecoverView, f func(*api.RecoverView)) api.RecoverView {
		f(&v)
		return v
	}
	for _, tc := range []struct {
		name  string
		views []api.RecoverView
		says  string
	}{
		{"nobody", nil, "no member answers"},
		{"a majority", []api.RecoverView{lostCluster(3, 1, 5, 9), lostCluster(3, 2, 5, 9)}, "2 of 3 voters are there, which is a majority"},
		{"a leader", []api.RecoverView{change(lostCluster(3, 1, 5, 9), func(v *api.RecoverView) { v.Leader = new("b") })}, "a follows b"},
		{"two clusters", []api.RecoverView{lostCluster(4, 1, 5, 9), change(lostCluster(4, 2, 5, 9), func(v *api.RecoverView) { v.ClusterID = "d" })}, "b is of cluster d, a of cluster c"},
		{"two disks of one member", []api.RecoverView{lostCluster(4, 1, 5, 9), change(lostCluster(4, 1, 5, 9), func(v *api.RecoverView) { v.Incarnation = "other" })}, "two disks say"},
		{"two histories", []api.RecoverView{
			change(lostCluster(5, 1, 5, 9), func(v *api.RecoverView) { v.History = "1.00000000000000aa" }),
			change(lostCluster(5, 2, 5, 9), func(v *api.RecoverView) { v.History = "1.00000000000000bb" }),
		}, "recovered apart"},
		{"removed", []api.RecoverView{change(lostCluster(3, 1, 5, 9), func(v *api.RecoverView) { v.Roster.Members = v.Roster.Members[1:] })}, "it was removed"},
	} {
		_, err := makePlan(tc.views, 7, time.Time{})
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: makePlan = %v, want %q", tc.name, err, tc.says)
		}
	}
}

func TestMakePlan_ChoosesTheLastLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		views   []api.RecoverView
		best    string
		keeps   string
		givesUp string
	}{
		{"one of three", []api.RecoverView{lostCluster(3, 2, 5, 9)}, "b", "", "a, c"},
		{"the later term before the longer log", []api.RecoverView{lostCluster(5, 1, 5, 90), lostCluster(5, 2, 6, 20)}, "b", "a", "c, d, e"},
		{"the longer log of one term", []api.RecoverView{lostCluster(4, 4, 5, 10), lostCluster(4, 3, 5, 9)}, "d", "c", "a, b"},
	} {
		p, err := makePlan(tc.views, 7, time.Time{})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if p.Survivor.Name != tc.best || planNames(p.Keeps) != tc.keeps || planNames(p.GivesUp) != tc.givesUp {
			t.Errorf("%s: survivor %s, keeps %s, gives up %s, want %s, %s and %s", tc.name, p.Survivor.Name, planNames(p.Keeps), planNames(p.GivesUp), tc.best, tc.keeps, tc.givesUp)
		}
		if p.History != "1.0000000000000007" || p.HistoryWas != "0" || p.AboveTerm < p.Term || len(p.MayLose) != 2 {
			t.Errorf("%s: %+v", tc.name, p)
		}
	}
}

// A member that was asked and inspected counts once, and by what it said itself.
func TestMakePlan_PrefersTheRunningMember(t *testing.T) {
	t.Parallel()
	file := lostCluster(3, 1, 5, 7)
	file.Running = false
	p, err := makePlan([]api.RecoverView{file, lostCluster(3, 1, 5, 9)}, 7, time.Time{})
	if err != nil || p.Last.Index != 9 {
		t.Errorf("makePlan = %+v, %v, want the log that ends at index 9", p.Last, err)
	}
}
