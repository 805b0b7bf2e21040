package member

import (
	"testing"

	"github.com/tidaldb/tidal/daemon/peer"
)

// What a member said of data that it has replaced, or has opened anew, is not held for or against it.
func TestDigested_ForgetsWhatAMemberSaysNoMore(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.Digested(2, []peer.DigestReport{{Index: 9, Version: 1, Sum: [32]byte{'x'}}})
	if v, ok := l.Verdict(0, 2); !ok || v.Index != 9 {
		t.Fatalf("it reported index 9: %+v, %t", v, ok)
	}
	l.Digested(2, nil)
	if v, ok := l.Verdict(0, 2); !ok || v.Index != 0 {
		t.Errorf("it reports nothing now: %+v, %t", v, ok)
	}
}
