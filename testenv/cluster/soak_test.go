//go:build soak

package cluster

import (
	"syscall"
	"testing"
	"time"
)

func TestSoak_FailsOver(t *testing.T) { failOver(t, 10) }

func TestSoak_LeaderKilledAgainAndAgain(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 32)
	for range 8 {
		l.During(func() {
			l.WaitAcked(500)
			c.Signal(c.Leader(), syscall.SIGKILL)
			l.WaitAcked(500)
		})
		healthy(c)
	}
	c.Audit(l)
}

func TestSoak_AllKilledAgainAndAgain(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 32)
	for range 6 {
		l.During(func() {
			l.WaitAcked(500)
			c.KillAll()
			l.WaitAcked(100)
		})
		healthy(c)
	}
	c.Audit(l)
}

func TestSoak_LeaderPausedAgainAndAgain(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 32)
	for range 4 {
		l.During(func() { pauseLeader(c, l, 10*time.Second) })
	}
	healthy(c)
	c.Audit(l)
}
