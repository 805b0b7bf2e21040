package cluster

import (
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// A leader that is killed under load costs nothing that was acknowledged; neither does the power
// cord of all three at once.
func TestCluster_KeepsWhatItAcknowledged(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 16)

	l.During(func() {
		l.WaitAcked(500)
		c.Signal(c.Leader(), syscall.SIGKILL)
		l.WaitAcked(500)
	})
	l.Audit()

	l.During(func() {
		l.WaitAcked(500)
		c.KillAll()
		l.WaitAcked(500)
	})
	l.Audit()

	// Every row is there and in step again.
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
