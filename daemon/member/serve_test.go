package member

import (
	"testing"

	"github.com/tidaldb/tidal/daemon/peer"
)

// refuses puts a source into quarantine once it has begun to send.
type refuses struct {
	labTransfer
	then func()
}

func (r *refuses) Header(h peer.SnapshotHeader) error {
	r.then()
	return r.labTransfer.Header(h)
}

// A replica that is found to be damaged while it serves another one serves it no more.
func TestFetchSnapshot_EndsWithAQuarantine(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.write("i")
	to := &refuses{then: func() { l.quarantine(l.sound(0), CauseDivergent, "its state is not that of the others", nil) }}
	err := l.FetchSnapshot(t.Context(), peer.SnapshotRequest{Hello: l.SelfHello(), Always: true}, to)
	if err == nil || len(to.chunks) > 0 {
		t.Errorf("%d chunks of a state that is divergent, %v", len(to.chunks), err)
	}
}
