package peer

import (
	"testing"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// identity makes a member say that it is another process of one identity.
func identity(boot, life uint64) func(*Options) {
	return func(o *Options) {
		self := o.Self
		o.Self = func() Hello {
			h := self()
			h.BootEpoch, h.Life = boot, life
			return h
		}
	}
}

// Two processes of one identity that are both alive are both refused, for as long as they live, and
// somebody is told.
func TestSessions_FenceTwoThatAreAlive(t *testing.T) {
	told := make(chan Hello, 8)
	witness := startMember(t, 1, anyPort, func(o *Options) { o.OnDuplicate = func(h Hello) { told <- h } })
	first := startMember(t, 2, anyPort, identity(7, 71))
	first.SetPeers([]Peer{{ID: 1, Addr: witness.addr}})
	first.awaitConnected(t, 1)
	second := startMember(t, 2, anyPort, identity(8, 82))
	second.SetPeers([]Peer{{ID: 1, Addr: witness.addr}})
	for _, m := range []*member{second, first} {
		s := m.awaitStatus(t, "a refusal", func(s PeerStatus) bool { return s.Failure == FailureRefusal })
		if s.Refusal.Reason != ReasonDuplicate {
			t.Errorf("refused with %v, want %s", s.Refusal, ReasonDuplicate)
		}
	}
	if h := receive(t, told, "an alarm"); h.Life != 82 {
		t.Errorf("told of %+v, want the second", h)
	}
	if got := count(t, witness.metrics.duplicates); got != 1 {
		t.Errorf("%v duplicates counted, want 1", got)
	}

	// A third start, when both are gone, is taken.
	first.stop()
	second.stop()
	third := startMember(t, 2, anyPort, identity(9, 93))
	third.SetPeers([]Peer{{ID: 1, Addr: witness.addr}})
	third.awaitConnected(t, 1)
}

// Who is started again is taken at once, and so is who only lost its stream.
func TestSessions_ARestartIsNoDuplicate(t *testing.T) {
	witness := startMember(t, 1, anyPort, func(o *Options) { o.OnDuplicate = func(h Hello) { t.Errorf("a duplicate: %+v", h) } })
	for boot := range uint64(3) {
		m := startMember(t, 2, anyPort, identity(boot, boot+1))
		m.SetPeers([]Peer{{ID: 1, Addr: witness.addr}})
		m.awaitConnected(t, 1)
		m.SetPeers(nil)
		m.SetPeers([]Peer{{ID: 1, Addr: witness.addr}})
		m.awaitConnected(t, 1)
		m.stop()
	}
}

func TestSessions_Rival(t *testing.T) {
	old := Hello{Cluster: ident.ClusterID{1}, Member: 2, Incarnation: ident.Incarnation{2}, BootEpoch: 5, Life: 55}
	for _, tc := range []struct {
		name   string
		change func(*Hello)
		rival  bool
	}{
		{"the same process", func(*Hello) {}, false},
		{"a later start", func(h *Hello) { h.BootEpoch, h.Life = 6, 66 }, true},
		{"the same boot of another process", func(h *Hello) { h.Life = 66 }, true},
		{"an earlier boot, which is an old copy", func(h *Hello) { h.BootEpoch, h.Life = 4, 44 }, false},
		{"another incarnation", func(h *Hello) { h.Incarnation, h.Life = ident.Incarnation{3}, 66 }, false},
		{"another cluster", func(h *Hello) { h.Cluster, h.Life = ident.ClusterID{3}, 66 }, false},
		{"an older binary", func(h *Hello) { h.Life = 0 }, false},
		{"another member", func(h *Hello) { h.Member, h.Life = 3, 66 }, false},
	} {
		var all sessions
		if _, ok := all.open(old, nil); !ok {
			t.Fatal("the first is not taken")
		}
		h := old
		tc.change(&h)
		if got := all.rival(h) != nil; got != tc.rival {
			t.Errorf("%s: rival = %t, want %t", tc.name, got, tc.rival)
		}
	}
}

// A process that does not answer is not alive: a later one takes its place, and what it sends after all
// is not taken.
func TestSessions_ASilentOneIsSuperseded(t *testing.T) {
	var all sessions
	s, _ := all.open(Hello{Member: 2, Life: 1}, silent{})
	if s.alive(1) {
		t.Fatal("a silent session is alive")
	}
	if s.takes(nil) == nil {
		t.Error("a frame of a superseded session is taken")
	}
	if _, ok := all.open(Hello{Member: 2, BootEpoch: 1, Life: 2}, silent{}); !ok {
		t.Error("the later process is not taken")
	}
}

type silent struct{}

func (silent) Send(*peerpb.Frame) error { return nil }
