package peer

import (
	"reflect"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
)

// teller is a member that says how far its replicas are, and hands on what others say.
type teller struct {
	says  []Report
	heard chan []Report
}

func (t teller) Standing(Hello) *Refusal                     { return nil }
func (t teller) Reports() []Report                           { return t.says }
func (t teller) Farewell(FarewellRequest) error              { return nil }
func (t teller) Reported(_ ident.MemberID, reports []Report) { t.heard <- reports }

// A ping tells how far the replicas of a member are, whole.
func TestNetwork_TellsReports(t *testing.T) {
	there := teller{heard: make(chan []Report, 1000)}
	peer := startMember(t, 2, anyPort, func(o *Options) { o.Members = there })
	says := []Report{{Group: 0, Applied: 17, AppliedTerm: 3, Committed: 16}, {Group: 5, Applied: 2, AppliedTerm: 1, Committed: 1}}
	m := startMember(t, 1, anyPort, func(o *Options) { o.PingEvery, o.Members = 10*time.Millisecond, teller{says: says} })
	m.SetPeers([]Peer{{ID: 2, Addr: peer.addr}})
	if got := receive(t, there.heard, "the reports"); !reflect.DeepEqual(got, says) {
		t.Errorf("reported %v, want %v", got, says)
	}
}
