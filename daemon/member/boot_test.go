package member

import (
	"fmt"
	"testing"

	"github.com/tidaldb/tidal/daemon/datadir"
)

// A generation that opened, and whose predecessor could not be put aside, is closed again: nothing of it takes
// part, least of all a replica whose log is closed.
func TestOpenGroup_ClosesWhatItCouldNotSettle(t *testing.T) {
	l := newLab(t, "n1")
	n := l.node("n1")
	k := n.m.keepers()[0]
	gen, ok, err := k.files.Current()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	old := datadir.Generation{Log: gen.Log, State: gen.State + 1}
	latched := datadir.Reseed{Reason: string(CauseLogWrite), Since: 1, Condemned: old, Keep: true}
	if err := k.files.Latch(latched); err != nil {
		t.Fatal(err)
	}
	if err := n.fs.MkdirAll(k.files.StateDir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	// A file stands where the old generation is to be kept.
	f, err := n.fs.Create(fmt.Sprintf("/data/groups/0/kept-%d-%s", latched.Since, latched.Reason), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.m.closeGroup(0, nil); err != nil {
		t.Fatal(err)
	}
	n.driver, n.replica = nil, nil
	g := n.m.openGroup(k, n.m.identity(), nil)
	n.m.admit(g)
	if g.quarantine == nil || g.replica != nil || n.m.Taking(0) != nil {
		t.Fatalf("quarantine %+v, a replica is left: %t", g.quarantine, g.replica != nil)
	}
}
