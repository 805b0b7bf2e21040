package cluster

import (
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// A leader that is killed under load costs nothing that was acknowledged; neither does one that is
// paused and comes back believing that it leads, nor the power cord of all three at once.
func TestCluster_KeepsWhatItAcknowledged(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 16)

	l.During(func() {
		l.WaitAcked(500)
		c.Signal(c.Leader(), syscall.SIGKILL)
		l.WaitAcked(500)
	})
	l.Check()

	l.During(func() { pauseLeader(c, l, time.Second) })
	l.Check()

	l.During(func() {
		l.WaitAcked(200)
		c.KillAll()
		l.WaitAcked(500)
	})
	healthy(c)
	c.Audit(l)
}

// pauseLeader stops the leader until another one has acknowledged writes, at least for d, and lets it
// go on.
func pauseLeader(c *Cluster, l *Ledger, d time.Duration) {
	l.WaitAcked(200)
	leader := c.Leader()
	atLeast := time.NewTimer(d)
	defer atLeast.Stop()
	resume := c.Pause(leader)
	l.WaitAcked(100)
	<-atLeast.C
	resume()
	l.WaitAcked(200)
}

// healthy waits until every row is there and in step again.
func healthy(c *Cluster) {
	c.Until("a healthy status", func() error {
		var st api.Status
		if err := c.Get(c.Members[0], "/cluster/status", &st); err != nil {
			return err
		}
		if st.Health.Level != api.HealthOK || st.Quorum.Spare != 1 {
			return &api.Problem{Detail: st.Health.Level}
		}
		return nil
	})
}
