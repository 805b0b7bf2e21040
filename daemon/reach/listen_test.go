package reach

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Whoever cannot listen is told where, what decided it, why, and what to do; who has the port is named.
func TestListen_SaysWhoHasThePort(t *testing.T) {
	t.Parallel()
	first, err := Listen("HTTP", "127.0.0.1:0", "--http")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	addr := first.Addr().String()
	_, err = Listen("gRPC", addr, "--grpc")
	e, ok := errors.AsType[*ListenError](err)
	if !ok || !e.Taken() || !strings.Contains(err.Error(), "listen for gRPC at "+addr+" (--grpc): ") {
		t.Fatalf("Listen = %v", err)
	}
	if _, err := os.Stat("/proc/net/tcp"); err == nil && (e.Holder.pid != os.Getpid() || e.Holder.command == "") {
		t.Errorf("it says that %+v listens at %s, want process %d", e.Holder, addr, os.Getpid())
	}
}

func TestListenError_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		holder holder
		taken  bool
		want   string
	}{
		{syscall.EADDRINUSE, holder{}, true, "another process listens there, perhaps this member itself: end it"},
		{syscall.EADDRINUSE, holder{7, "etcd"}, true, "process 7 (etcd) listens there: end it"},
		{syscall.EADDRNOTAVAIL, holder{}, false, "this machine has no such address"},
		{syscall.EACCES, holder{}, false, "this user may not listen at such a port: name one above 1023"},
		{&net.DNSError{Name: "db9", Err: "no such host"}, holder{}, false, "no address for db9: no such host"},
		{syscall.EMFILE, holder{}, false, "too many open files"},
	} {
		e := &ListenError{What: "HTTP", Addr: "db9:9500", Where: "--http", Err: &net.OpError{Op: "listen", Err: tc.err}, Holder: tc.holder}
		if got := e.Error(); e.Taken() != tc.taken || !strings.HasPrefix(got, "listen for HTTP at db9:9500 (--http): "+tc.want) {
			t.Errorf("%v: %q, want %q; taken = %t, want %t", tc.err, got, tc.want, e.Taken(), tc.taken)
		}
	}
}

func TestListeningAt(t *testing.T) {
	t.Parallel()
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:5209 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 90210 1 0 100 0 0 10 0
   1: 0100007F:5209 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 90211 1 0 100 0 0 10 0
   2: 00000000:520A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 90212 1 0 100 0 0 10 0
  cut short
`
	if got := listeningAt(table, 0x5209); len(got) != 1 || !got["90210"] {
		t.Errorf("listeningAt = %v, want 90210: only what listens at the port", got)
	}
}
