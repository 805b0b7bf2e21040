package member

import (
	"errors"
	"testing"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
)

// A log that makes use of what this binary does not understand: the replica stops before it, says what is
// missing, and stays stopped, with nothing touched. It is the binary that must change.
func TestMember_ANewerLogClosesAnOlderBinary(t *testing.T) {
	t.Parallel()
	const unheardOf = ident.Capabilities(1) << 63
	l := newLab(t, "n1")
	n := l.nodes[0]
	l.write()
	before := n.status().Applied
	if _, err := n.replica.BeginPropose(command.EncodeFeature(unheardOf), nil); err != nil {
		t.Fatal(err)
	}
	closed := func(when string) {
		t.Helper()
		_, err := n.m.Replica(0)
		q, ok := errors.AsType[*QuarantinedError](err)
		if !ok || q.Quarantine.Cause != CauseUpgradeRequired {
			t.Fatalf("%s: %v, want a replica that needs an upgrade", when, err)
		}
		if why := q.Quarantine.Detail; why == "" {
			t.Errorf("%s: it does not say why", when)
		} else {
			t.Log(when + ": " + why)
		}
		if s := n.m.Status(); s.Ready || len(s.NotReady) == 0 {
			t.Errorf("%s: ready %t, %q", when, s.Ready, s.NotReady)
		}
	}
	var unknown error
	for range 50 {
		n.driver.Turn()
		n.driver.TakeAppends()
		if err := n.driver.Append(); err != nil {
			t.Fatal(err)
		}
		n.driver.TakeApplies()
		if unknown = n.driver.Apply(); unknown != nil {
			break
		}
	}
	if _, ok := errors.AsType[*command.UnknownKindError](unknown); !ok {
		t.Fatalf("applied with %v, want an unknown kind", unknown)
	}
	closed("running")
	for _, when := range []string{"started again", "and again"} {
		n.stop()
		n.start()
		for range 50 {
			if n.driver == nil {
				break
			}
			n.driver.Tick()
			n.driver.TakeAppends()
			_ = n.driver.Append()
			n.driver.TakeApplies()
			if n.driver.Apply() != nil {
				break
			}
		}
		if g := n.m.current(0); g != nil && g.store != nil && g.store.Position().Applied.Index < before {
			t.Errorf("%s: applied %s, was %d before", when, g.store.Position().Applied, before)
		}
		closed(when)
	}
}
