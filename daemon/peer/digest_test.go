package peer

import (
	"reflect"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// A ping tells what states added up to, and a permit is asked for and answered.
func TestNetwork_TellsDigestsAndAsksForPermits(t *testing.T) {
	s := newShelf()
	leader := startMember(t, 2, anyPort, func(o *Options) { o.Snapshots = s })
	digests := []DigestReport{{Group: 0, Index: 17, Version: 1, Sum: [32]byte{1, 2}}, {Group: 5, Index: 3, Version: 2}}
	said := make(chan []DigestReport, 2) // one ping each; then none
	said <- digests
	said <- nil
	m := startMember(t, 1, anyPort, func(o *Options) {
		o.PingEvery, o.Digests = 10*time.Millisecond, func() []DigestReport {
			select {
			case x := <-said:
				return x
			default:
				return nil
			}
		}
	})
	m.SetPeers([]Peer{{ID: 2, Addr: leader.addr}})
	if got := receive(t, s.reported, "the digests"); !reflect.DeepEqual(got, digests) {
		t.Errorf("reported %v, want %v", got, digests)
	}
	if got := receive(t, s.reported, "that there are none any more"); len(got) != 0 {
		t.Errorf("reported %v, want nothing", got)
	}
	got, err := m.Permit(t.Context(), leader.addr, PermitRequest{Hello: m.self(), Group: 3})
	if want := (PermitReply{Granted: true, Refused: "one at a time", Term: 9, Window: time.Second}); err != nil || got != want {
		t.Errorf("permit = %+v, %v, want %+v", got, err, want)
	}
	if got, err := m.Permit(t.Context(), leader.addr, PermitRequest{Hello: m.self()}); err != nil || got.Granted {
		t.Errorf("permit = %+v, %v, want none", got, err)
	}
	s.err = &Refusal{Reason: ReasonUnknownMember}
	if _, err := m.Permit(t.Context(), leader.addr, PermitRequest{Hello: m.self()}); err == nil {
		t.Error("a refusal is no error")
	}
}

// What is no report is left out, and no number of them costs more than the bound.
func TestDecodeDigests_LeavesOutWhatIsNone(t *testing.T) {
	t.Parallel()
	good := &peerpb.DigestReport{Index: 7, Version: 1, Sum: make([]byte, 32)}
	got := decodeDigests([]*peerpb.DigestReport{
		good, nil, {Version: 1, Sum: make([]byte, 31)}, {Version: 0, Sum: make([]byte, 32)}, {Version: 1 << 16, Sum: make([]byte, 32)},
	})
	if len(got) != 1 || got[0].Index != 7 {
		t.Errorf("decoded %+v, want the first alone", got)
	}
	many := make([]*peerpb.DigestReport, maxDigests+1)
	for i := range many {
		many[i] = good
	}
	if got := len(decodeDigests(many)); got != maxDigests {
		t.Errorf("decoded %d, limit %d", got, maxDigests)
	}
}
