package verbs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// noPlanError says why there is nothing to recover, or nothing to recover from.
type noPlanError struct{ Why string }

func (e *noPlanError) Error() string { return e.Why }

// makePlan chooses the best survivor among the members that views tell of, and says what becomes of all
// others. It is pure: history is the name of the life that follows, at when the plan was made.
//
// The best is the one whose log ends last, by term, then by index, as in an election: whatever a majority
// acknowledged and any of these members holds, it holds. Only a running member can carry a plan out.
func makePlan(views []api.RecoverView, nonce uint64, at time.Time) (api.RecoverPlan, error) {
	views, err := oneCluster(views)
	if err != nil {
		return api.RecoverPlan{}, err
	}
	best := slices.MaxFunc(views, func(a, b api.RecoverView) int {
		return cmp.Or(
			cmp.Compare(a.Last.Term, b.Last.Term),
			cmp.Compare(a.Last.Index, b.Last.Index),
			cmp.Compare(a.CommitIndex, b.CommitIndex),
			compareBool(a.Running, b.Running),
			cmp.Compare(b.Name, a.Name))
	})
	history, err := nextHistory(best.History, nonce)
	if err != nil {
		return api.RecoverPlan{}, err
	}
	p := api.RecoverPlan{
		Schema: api.RecoverPlanSchema, MadeAt: at.UTC(), ClusterID: best.ClusterID, Group: best.Group,
		Term: best.Term, Last: best.Last, RosterVersion: best.Roster.Version,
		HistoryWas: best.History, History: history, Keeps: []api.RecoverMember{}, GivesUp: []api.RecoverMember{},
	}
	voters, answer := 0, 0
	for _, m := range best.Roster.Members {
		x := api.RecoverMember{Name: m.Name, ID: m.ID, Incarnation: m.Incarnation, Role: m.Role, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr}
		v, found := viewOf(views, m)
		if m.Role == api.RoleVoter {
			voters++
			if found {
				answer++
			}
		}
		switch {
		case m.ID == best.ID:
			x.Why = fmt.Sprintf("its log ends last, at index %d of term %d", best.Last.Index, best.Last.Term)
			p.Survivor = x
		case found:
			x.Why = fmt.Sprintf("its log ends at index %d of term %d; it follows the survivor", v.Last.Index, v.Last.Term)
			p.Keeps = append(p.Keeps, x)
			p.AboveTerm = max(p.AboveTerm, v.Term)
		default:
			x.Why = "it does not answer, and its disk was not read"
			p.GivesUp = append(p.GivesUp, x)
		}
	}
	p.AboveTerm = max(p.AboveTerm, best.Term)
	switch {
	case p.Survivor.ID == "":
		return api.RecoverPlan{}, &noPlanError{fmt.Sprintf("%s is not in the membership at the end of its own log: it was removed", best.Name)}
	case answer > voters/2:
		return api.RecoverPlan{}, &noPlanError{fmt.Sprintf("%d of %d voters are there, which is a majority: start them, and they elect a leader by themselves", answer, voters)}
	case len(p.GivesUp) == 0:
		return api.RecoverPlan{}, &noPlanError{"no member is lost"}
	}
	p.MayLose = mayLose(best, voters)
	return p, nil
}

// oneCluster keeps the views of the latest history, and refuses those that cannot be of one cluster that
// has lost its leader.
func oneCluster(views []api.RecoverView) ([]api.RecoverView, error) {
	if len(views) == 0 {
		return nil, &noPlanError{"no member answers, and no inspection was given"}
	}
	var latest uint64
	for _, v := range views {
		epoch, err := epochOf(v.History)
		switch {
		case err != nil:
			return nil, &noPlanError{fmt.Sprintf("%s: %v", v.Name, err)}
		case v.ClusterID != views[0].ClusterID:
			return nil, &noPlanError{fmt.Sprintf("%s is of cluster %s, %s of cluster %s", v.Name, v.ClusterID, views[0].Name, views[0].ClusterID)}
		case v.Group != views[0].Group:
			return nil, &noPlanError{fmt.Sprintf("%s tells of group %s, %s of group %s", v.Name, v.Group, views[0].Name, views[0].Group)}
		case v.Leader != nil:
			return nil, &noPlanError{fmt.Sprintf("%s follows %s: the cluster has a leader and needs no recovery", v.Name, *v.Leader)}
		}
		latest = max(latest, epoch)
	}
	var kept []api.RecoverView
	for _, v := range views {
		if epoch, _ := epochOf(v.History); epoch < latest {
			continue
		}
		if i := slices.IndexFunc(kept, func(k api.RecoverView) bool { return k.ID == v.ID }); i >= 0 {
			if kept[i].Incarnation != v.Incarnation {
				return nil, &noPlanError{fmt.Sprintf("two disks say that they are member %s: incarnations %s and %s", v.ID, kept[i].Incarnation, v.Incarnation)}
			}
			if v.Running { // a running member knows better than a file
				kept[i] = v
			}
			continue
		}
		if len(kept) > 0 && kept[0].History != v.History {
			return nil, &noPlanError{fmt.Sprintf("%s goes on as history %s, %s as history %s: they were recovered apart and cannot be joined", kept[0].Name, kept[0].History, v.Name, v.History)}
		}
		kept = append(kept, v)
	}
	return kept, nil
}

func viewOf(views []api.RecoverView, m api.Member) (api.RecoverView, bool) {
	i := slices.IndexFunc(views, func(v api.RecoverView) bool { return v.ID == m.ID && v.Incarnation == m.Incarnation })
	if i < 0 {
		return api.RecoverView{}, false
	}
	return views[i], true
}

// epochOf reads the counter of a history: "0", or "epoch.nonce".
func epochOf(history string) (epoch uint64, err error) {
	if history == "0" {
		return 0, nil
	}
	var nonce uint64
	if _, err := fmt.Sscanf(history, "%d.%x", &epoch, &nonce); err != nil || epoch == 0 {
		return 0, fmt.Errorf("history %q is none", history)
	}
	return epoch, nil
}

func nextHistory(history string, nonce uint64) (string, error) {
	epoch, err := epochOf(history)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%016x", epoch+1, nonce), nil
}

// mayLose says to people what is not on the survivor's disk.
func mayLose(v api.RecoverView, voters int) []string {
	lines := []string{fmt.Sprintf("Writes that a majority of the %d voters acknowledged without %s, after index %d: nobody who is left knows whether there are any.", voters, v.Name, v.Last.Index)}
	if v.LeaderLast != nil {
		if missing := int64(*v.LeaderLast) - int64(v.Last.Index); missing > 0 {
			lines = append(lines, fmt.Sprintf("The last leader was heard to have index %d: at least %d entries are missing here; they may have been acknowledged.", *v.LeaderLast, missing))
		}
	}
	if n := v.Last.Index - min(v.CommitIndex, v.Last.Index); n > 0 {
		lines = append(lines, fmt.Sprintf("Nothing of the log is dropped: %d entries after index %d, which are not known to be committed, count as committed from then on, so writes that were answered with an error may turn out to be done.", n, v.CommitIndex))
	}
	return lines
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
