package config

import (
	"errors"
	"reflect"
	"testing"
)

// Whatever a file holds: it is refused with what is wrong, in which line, or it gives a configuration
// that a member can start with. The same file gives the same one.
func FuzzParse(f *testing.F) {
	f.Add([]byte(three))
	f.Add([]byte("replication: {ack: leader, quorum_timeout: 1s}\nelection: {tick: 10ms}\n" + three))
	f.Add([]byte("members: [{name: us-west, grpc_addr: \"[::1]:1\", http_addr: \"h:65536\"}]"))
	f.Add([]byte("members: &a [*a]"))
	f.Add([]byte("members: null\n---\nmembers: []"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("t.yaml", text, Flags{Name: "us-west"}, none)
		if err != nil {
			if e, ok := errors.AsType[*InvalidError](err); !ok || len(e.Problems) == 0 || e.Error() == "" {
				t.Errorf("refused with %#v", err)
			}
			return
		}
		if c.Self().Name != "us-west" || c.Self().GRPCAddr == "" || c.HTTPBind == "" || c.GRPCBind == "" || c.Topology == [32]byte{} {
			t.Errorf("accepted as %+v", c)
		}
		if c.Election.Tick <= 0 || c.Election.ElectionTicks <= c.Election.HeartbeatTicks || c.Forward.Request <= c.Replication.QuorumTimeout {
			t.Errorf("accepted with timings %+v %+v %+v", c.Election, c.Forward, c.Replication)
		}
		again, err := Parse("t.yaml", text, Flags{Name: "us-west"}, none)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("then %+v, %v", again, err)
		}
	})
}
