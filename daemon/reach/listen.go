package reach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ListenError says that this process cannot listen at an address.
type ListenError struct {
	What  string // HTTP, gRPC or metrics
	Addr  string
	Where string // the settings that say so
	Err   error
	// Holder is who listens there; zero: nobody does, or it cannot be seen from here.
	Holder holder
}

// Taken reports whether the address is one of this machine that another process has: it is free when that
// one ends. Anything else is a mistake in the address, or a right that is missing.
func (e *ListenError) Taken() bool { return errors.Is(e.Err, syscall.EADDRINUSE) }

func (e *ListenError) Error() string {
	return fmt.Sprintf("listen for %s at %s (%s): %s; nothing was changed", e.What, e.Addr, e.Where, e.why())
}

func (e *ListenError) why() string {
	dns, isDNS := errors.AsType[*net.DNSError](e.Err)
	switch {
	case e.Taken() && e.Holder.pid != 0:
		return fmt.Sprintf("process %d (%s) listens there: end it, or listen elsewhere", e.Holder.pid, e.Holder.command)
	case e.Taken():
		return "another process listens there, perhaps this member itself: end it, or listen elsewhere"
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address: name one of its own, or 0.0.0.0 for all of them"
	case errors.Is(e.Err, syscall.EACCES):
		return "this user may not listen at such a port: name one above 1023, or give tidald the right (CAP_NET_BIND_SERVICE)"
	case isDNS:
		return fmt.Sprintf("no address for %s: %s", dns.Name, dns.Err)
	}
	if op, ok := errors.AsType[*net.OpError](e.Err); ok {
		return op.Err.Error()
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// Listen listens at addr for what; where names the settings that decide it. The error is a *ListenError.
func Listen(what, addr, where string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	e := &ListenError{What: what, Addr: addr, Where: where, Err: err}
	if e.Taken() {
		e.Holder = whoListens("/proc", addr)
	}
	return nil, e
}

// holder is a process.
type holder struct {
	pid     int
	command string // as the kernel has it: at most 15 bytes
}

// whoListens asks the kernel, through its proc file system, who listens at the port of addr. Of the
// processes of others, and of other containers, it is not told. Where there is no such file system, nobody is.
func whoListens(proc, addr string) holder {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return holder{}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return holder{}
	}
	sockets := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue
		}
		for inode := range listeningAt(string(b), n) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return holder{}
	}
	fds, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	if err != nil {
		return holder{}
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || !sockets[target] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		pid, err := strconv.Atoi(filepath.Base(dir))
		command, readErr := os.ReadFile(filepath.Join(dir, "comm"))
		if err == nil && readErr == nil {
			return holder{pid, strings.TrimSpace(string(command))}
		}
	}
	return holder{}
}

// listeningAt returns the inodes of the sockets that listen at port, of a table as in /proc/net/tcp:
//
//	sl  local_address rem_address   st tx_queue:rx_queue tr:tm->when retrnsmt   uid  timeout inode …
//	 0: 0100007F:5209 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 90210 …
func listeningAt(table string, port int) map[string]bool {
	const listening = "0A"
	inodes := map[string]bool{}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening {
			continue
		}
		_, hex, ok := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); ok && err == nil && int(n) == port {
			inodes[f[9]] = true
		}
	}
	return inodes
}
