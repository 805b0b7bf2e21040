// Package daemon wires one member together: data directory, groups, peers, HTTP surface. It decides
// nothing; open.go is the boot sequence, one line a step.
//
// Start returns once the member listens; readiness says when it may serve. Stop ends everything in
// the opposite order of its beginning and returns when no goroutine is left. Lock order, where more
// than one lock is held: member.Member -> replica.Replica.
//
// Callers: cmd/tidald, and tests that want a member in their own process.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/auth"
	"github.com/tidaldb/tidal/daemon/beat"
	"github.com/tidaldb/tidal/daemon/config"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/httpd"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/peer"
)

// Options configures New.
type Options struct {
	Config  *config.Config
	Version string

	// The seams; nil means the real thing.
	FS     vfs.FS
	Now    func() time.Time
	Logger *slog.Logger
}

// Daemon is one member. New opens its data directory and its listeners, Start lets it serve, Stop
// ends it.
type Daemon struct {
	opts     Options
	log      *slog.Logger
	registry *prometheus.Registry
	beat     beat.Beat // of everything that is done again and again

	reloader *auth.Reloader
	peerKey  []byte       // nil: members have none
	apiKeys  *auth.KeySet // nil: everyone may
	tls      *auth.TLS    // nil: plain text
	dir      *datadir.Dir
	journal  *journal.Journal
	member   *member.Member
	faults   *peer.Faults // nil: there are no drills
	network  *peer.Network
	client   *httpd.Client
	ops      *ops.Ops
	http     *httpd.Server

	httpListener, grpcListener, metricsListener net.Listener

	// failed gets the first error of a part that should run until Stop.
	failed chan error

	mu       sync.Mutex // guards cleanups
	cleanups []cleanup
}

// cleanup is one named step of the teardown stack.
type cleanup struct {
	name string
	stop func(context.Context) error
}

// onStop registers a teardown right after the thing it tears down exists, so that a later failure
// unwinds it.
func (d *Daemon) onStop(name string, stop func(context.Context) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cleanups = append(d.cleanups, cleanup{name, stop})
}

// run starts a part that runs until its teardown, which must make it return; Stop waits for it.
func (d *Daemon) run(name string, serve func() error, stop func(context.Context) error) {
	done := make(chan error, 1)
	go func() { done <- serve() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := <-done; err != nil {
			d.fail(name, err)
		}
	}()
	d.onStop(name, func(ctx context.Context) error {
		err := stop(ctx)
		<-ended
		return err
	})
}

// fail reports that a part has ended by itself; the first report is enough.
func (d *Daemon) fail(name string, err error) {
	select {
	case d.failed <- fmt.Errorf("%s: %w", name, err):
	default:
	}
}

// Failed delivers the first error of a part that ended by itself. Whoever runs the daemon stops it
// then.
func (d *Daemon) Failed() <-chan error { return d.failed }

// HTTPAddr is where the surface listens.
func (d *Daemon) HTTPAddr() net.Addr { return d.httpListener.Addr() }

// Stop runs the teardowns, last in first out, and joins their errors. When it returns, nothing the
// Daemon started is left. It is idempotent.
func (d *Daemon) Stop(ctx context.Context) error {
	d.mu.Lock()
	cleanups := d.cleanups
	d.cleanups = nil
	d.mu.Unlock()
	var errs []error
	for _, c := range slices.Backward(cleanups) {
		if err := c.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}
