//go:build soak

package cluster

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// The behaviours of one surface over several members, on real processes, under the names that they have in
// process; see the tests of package daemon.

func TestSoak_SurfaceForwardedWriteLandsOnLeaderAndReplicates(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	h, err := c.Do(http.MethodPost, c.besides(leader), "/signals", api.Signal{Item: "i", Signal: "view"}, nil)
	if err != nil || h.Get(api.HeaderMember) != leader || h.Get(api.HeaderAck) != api.AckQuorum {
		t.Fatalf("a write through a follower: %v, %v", h, err)
	}
	for _, m := range c.Members {
		var item api.ItemAnswer
		if err := c.Get(m, "/items/i?min_index="+h.Get(api.HeaderIndex), &item); err != nil || item.Signals["view"].Count != 1 {
			t.Errorf("on %s: %+v, %v", m.Name, item, err)
		}
	}
}

// Three views agree as soon as the promote is answered, and the old leader forwards to the new one.
func TestSoak_SurfacePromoteFansOut(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	for range 5 {
		old := c.Leader()
		target := c.besides(old)
		via := c.others(old, target.Name)[0]
		began := time.Now()
		p, err := c.promote(via, api.PromoteRequest{Region: target.Name})
		answered := time.Since(began)
		if err != nil || len(p.Acked) != len(c.Members) {
			t.Fatalf("promote %s through %s: %+v, %v", target.Name, via.Name, p, err)
		}
		for _, m := range c.Members {
			if s := c.status(m); s.Leader == nil || *s.Leader != target.Name || s.Term != p.Term {
				t.Errorf("%s sees %v lead term %d after the promote of %s was confirmed", m.Name, s.Leader, s.Term, target.Name)
			}
		}
		t.Logf("promote %s: answered after %s, three views agree after %s", target.Name, answered.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if h, err := c.Do(http.MethodPost, c.Member(old), "/signals", api.Signal{Item: "i", Signal: "view"}, nil); err != nil || h.Get(api.HeaderMember) != target.Name {
			t.Errorf("a write through %s was answered by %s: %v", old, h.Get(api.HeaderMember), err)
		}
	}
}

func TestSoak_SurfaceStatusAggregatesAllRegions(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	for _, m := range c.Members {
		c.Until("every row in step, by "+m.Name, func() error {
			s := c.status(m)
			if s.Observer != m.Name || s.Leader == nil || *s.Leader != leader || len(s.Regions) != len(c.Members) || s.RelayLogLen == nil {
				t.Fatalf("status of %s: %+v", m.Name, s)
			}
			for _, r := range s.Regions {
				if !r.Reachable || r.Partitioned || *r.LagEvents != 0 || r.AppliedEvents != *s.RelayLogLen {
					return errors.New(r.Name + " is behind " + strconv.FormatUint(*r.LagEvents, 10))
				}
			}
			return nil
		})
	}
}

// Five members, two of which take connections and say nothing: every row is there, the silent ones with the
// worst case, and no status waits for them longer than once.
func TestSoak_SurfaceStatusStaysHonestAboutTheUnreachable(t *testing.T) {
	c := Start(t, Binary(t), Options{Nodes: 5})
	c.item("i")
	leader := c.Leader()
	rest := c.others(leader)
	silent, via := rest[:2], rest[2]
	for _, m := range silent {
		defer c.Pause(m.Name)()
	}
	const clients, each = 4, 25
	took := make([]time.Duration, clients*each)
	var asking sync.WaitGroup
	for i := range clients {
		asking.Go(func() {
			for j := range each {
				began := time.Now()
				var s api.Status
				if err := c.Get(via, "/cluster/status", &s); err != nil {
					t.Errorf("status: %v", err)
					return
				}
				took[i*each+j] = time.Since(began)
				if len(s.Regions) != 5 || s.Quorum.Up != 3 || s.Quorum.Spare != 0 || s.Health.Level != api.HealthDegraded || s.Leader == nil || *s.Leader != leader {
					t.Errorf("status: leader %v, %+v, %+v", s.Leader, s.Quorum, s.Health)
				}
				for _, r := range s.Regions {
					if !slices.ContainsFunc(silent, func(m api.DevMember) bool { return m.Name == r.Name }) {
						continue
					}
					if r.Reachable || !r.Partitioned || r.AppliedEvents != 0 || *r.LagEvents != *s.RelayLogLen || r.AppliedIndex != nil || r.Term != nil || r.Faults != nil || r.Error.Code != "timeout" || r.LastSeen == nil {
						t.Errorf("the row of a silent member: %+v", r)
					}
				}
			}
		})
	}
	asking.Wait()
	slices.Sort(took)
	t.Logf("status of five members with two silent, %d times: p50 %s, p99 %s, max %s", len(took),
		took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond))
}

// A write that is under way to a leader that stands still is answered all the same, with what is known
// of it; what comes later finds the next leader. Where no majority is left nothing is waited for either.
func TestSoak_SurfaceWritesToAPausedLeaderAreBounded(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	write := func(via api.DevMember) (*api.Problem, time.Duration) {
		began := time.Now()
		_, err := c.Do(http.MethodPost, via, "/signals", api.Signal{Item: "i", Signal: "view"}, nil)
		took := time.Since(began)
		if err == nil {
			return nil, took
		}
		p, ok := errors.AsType[*api.Problem](err)
		if !ok {
			t.Fatalf("a write through %s, after %s: %v", via.Name, took, err)
		}
		if p.Effect != api.EffectNone && p.Effect != api.EffectUnknown {
			t.Errorf("a write through %s: %+v", via.Name, p)
		}
		return p, took
	}
	for round := range 3 {
		old := c.Leader()
		rest := c.others(old)
		resume := c.Pause(old)
		p, took := write(rest[0])
		t.Logf("round %d: a write that was under way: %s after %s", round, outcomeOf(p), took.Round(time.Millisecond))
		c.leads(rest[0], names(rest)...)
		c.Until("a write that is taken", func() error {
			if p, _ := write(rest[1]); p != nil {
				return p
			}
			return nil
		})
		resume()
		c.whole()
	}
	old := c.Leader()
	rest := c.others(old)
	resume, resumeOther := c.Pause(old), c.Pause(rest[0].Name)
	p, took := write(rest[1])
	t.Logf("no majority: %s after %s", outcomeOf(p), took.Round(time.Millisecond))
	if p == nil {
		t.Error("one member of three took a write")
	}
	c.Until("the last one to know that nobody leads", func() error {
		if s := c.status(rest[1]); s.Leader != nil || s.Health.Level != api.HealthCritical {
			return errors.New(s.Health.Level)
		}
		return nil
	})
	if p, took := write(rest[1]); p == nil || p.Effect != api.EffectNone {
		t.Errorf("a write where nobody leads: %+v after %s", p, took)
	}
	resume()
	resumeOther()
	c.whole()
}

func outcomeOf(p *api.Problem) string {
	if p == nil {
		return "taken"
	}
	return string(p.Code) + ", effect " + string(p.Effect)
}

// Writes through a follower beside writes to the leader, in turns. It prints the ratio.
func TestSoak_SurfaceForwardedWritesBesideDirectOnes(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	const clients = 64
	var ratios []float64
	for range 3 {
		direct, forwarded := c.throughput(c.Member(leader), clients), c.throughput(c.besides(leader), clients)
		ratios = append(ratios, forwarded/direct)
		t.Logf("%d clients: %.0f writes/s to the leader, %.0f through a follower: %.0f %%", clients, direct, forwarded, 100*forwarded/direct)
	}
	slices.Sort(ratios)
	t.Logf("median %.0f %%", 100*ratios[1])
}

// throughput returns how many signals a second m takes from clients.
func (c *Cluster) throughput(m api.DevMember, clients int) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var acked atomic.Int64
	var writing sync.WaitGroup
	began := time.Now()
	for range clients {
		writing.Go(func() {
			for ctx.Err() == nil {
				if _, err := do(client, http.MethodPost, m, "/signals", api.Signal{Item: "i", Signal: "view"}, nil); err == nil {
					acked.Add(1)
				}
			}
		})
	}
	writing.Wait()
	return float64(acked.Load()) / time.Since(began).Seconds()
}

// The member that runs a change is killed before anybody could answer it. Asked by its id, of any member, the
// operation is unknown at most until there is a leader again, and then what the membership says that it is.
func TestSoak_SurfaceOperationsOutliveAKilledMember(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 4)
	l.During(func() {
		l.WaitAcked(50)
		leader := c.Leader()
		whole, err := c.promote(c.Member(leader), api.PromoteRequest{Region: leader, OperationID: "whole"})
		if err != nil || !whole.OK {
			t.Fatalf("promote %s: %+v, %v", leader, whole, err)
		}
		gone := c.besides(leader)
		var resume []func()
		for _, m := range c.others(leader) {
			resume = append(resume, c.Pause(m.Name))
		}
		var op api.Operation
		if _, err := c.Do(http.MethodPost, c.Member(leader), "/cluster/members/remove", api.MemberRequest{Name: gone.Name, OperationID: "cut", NoWait: true, TimeoutMS: 60_000}, &op); err != nil {
			t.Fatalf("remove %s: %v", gone.Name, err)
		}
		was := c.pid(leader)
		c.Signal(leader, syscall.SIGKILL)
		c.Until(leader+" to be started again", func() error {
			if c.pid(leader) == was {
				return errors.New("not yet")
			}
			return c.Get(c.Member(leader), "/cluster/ops/cut", &op)
		})
		if op.Member != leader || op.State == api.OperationRunning || op.State == api.OperationDone {
			t.Errorf("after the restart, alone: %+v", op)
		}
		for _, f := range resume {
			f()
		}
		asked := c.others(leader, gone.Name)[0]
		c.Until("the operation to be resolved", func() error {
			if err := c.Get(asked, "/cluster/ops/cut", &op); err != nil {
				return err
			}
			if op.State == api.OperationUnknown {
				return errors.New(op.Problem.Detail)
			}
			return nil
		})
		t.Logf("what was cut short is %s", op.State)
		var m api.Members
		if err := c.Get(asked, "/cluster/members", &m); err != nil {
			t.Fatal(err)
		}
		is := slices.ContainsFunc(m.Members, func(x api.Member) bool { return x.Name == gone.Name })
		if is != (op.State == api.OperationFailed) || op.Member != leader {
			t.Errorf("the operation is %+v, problem %+v, and %s is a member: %t", op, op.Problem, gone.Name, is)
		}
		if !is { // its disk stays as it was
			c.Members = slices.DeleteFunc(slices.Clone(c.Members), func(m api.DevMember) bool { return m.Name == gone.Name })
		}
		if err := c.Get(asked, "/cluster/ops/whole", &op); err != nil || op.State != api.OperationDone || op.Member != leader {
			t.Errorf("an operation that had ended: %+v, %v", op, err)
		}
	})
	c.Audit(l)
}
