package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tidaldb/tidal/daemon/auth"
	"github.com/tidaldb/tidal/daemon/beat"
	"github.com/tidaldb/tidal/daemon/config"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/httpd"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/reach"
)

// New opens a member: after it returned nil, its directory is locked and its ports are taken, but
// nobody is served before Start. On an error everything is given back, and the disk is as it was.
func New(o Options) (*Daemon, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Daemon{opts: o, log: o.Logger, beat: beat.New(), registry: prometheus.NewRegistry(), failed: make(chan error, 1)}
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, step := range []func() error{
		d.readSecrets,
		d.listen,
		d.openDirectory,
		d.makeFaults,
		d.makeClient,
		d.makeMember,
		d.makeNetwork,
		d.makeSurface,
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, d.Stop(context.Background()))
		}
	}
	return d, nil
}

// Start lets the member serve: peers first, then its groups, then clients.
func (d *Daemon) Start() error {
	d.run("peer network", func() error { return d.network.Serve(d.grpcListener) }, func(context.Context) error {
		d.network.Stop()
		return nil
	})
	d.onStop("member", func(context.Context) error { return d.member.Stop() })
	if err := d.member.Start(d.network); err != nil {
		return err
	}
	if d.metricsListener != nil {
		d.serveMetrics()
	}
	d.reload()
	d.run("HTTP", func() error { return d.http.Serve(d.httpListener) }, d.http.Stop)
	d.onStop("leadership", func(ctx context.Context) error { // first, while requests can still be forwarded
		d.member.HandOver(ctx)
		return nil
	})
	d.onStop("journal", func(context.Context) error { // first: whoever follows reads the last event, and leaves
		d.journal.Close(journal.Stopping{})
		return nil
	})
	d.log.Info("listening", slog.String("http", d.httpListener.Addr().String()), slog.String("grpc", d.grpcListener.Addr().String()))
	return nil
}

// listen takes the ports before anything on the disk is touched: a port that is taken is the
// commonest mistake there is.
func (d *Daemon) listen() (err error) {
	c := d.opts.Config
	for _, l := range []struct {
		what, where, addr string
		into              *net.Listener
	}{
		{"HTTP", "--http, TIDAL_HTTP, http_bind, http_addr", c.HTTPBind, &d.httpListener},
		{"gRPC", "--grpc, TIDAL_GRPC, grpc_bind, grpc_addr", c.GRPCBind, &d.grpcListener},
		{"metrics", "--metrics, TIDAL_METRICS, metrics.bind", c.MetricsBind, &d.metricsListener},
	} {
		if l.addr == "" {
			continue
		}
		if *l.into, err = reach.Listen(l.what, l.addr, l.where); err != nil {
			return err
		}
		d.onStop(l.what+" listener", func(context.Context) error {
			if err := (*l.into).Close(); !errors.Is(err, net.ErrClosed) { // a server closes its own
				return err
			}
			return nil
		})
	}
	return nil
}

// openDirectory opens the data directory. An empty one is no use to a member that nobody declares and
// that knows nobody to ask.
func (d *Daemon) openDirectory() (err error) {
	c := d.opts.Config
	d.dir, err = datadir.Open(datadir.Options{Path: c.DataDir, Name: c.Name, FS: d.opts.FS, Logger: d.log})
	if err != nil {
		return fmt.Errorf("data directory (--data-dir, TIDAL_DATA_DIR): %w", err)
	}
	d.onStop("data directory", func(context.Context) error { return d.dir.Close() })
	if fresh := d.dir.Member().ID == 0; fresh && !c.Declared && len(c.Join.Seeds) == 0 && !c.Join.Await {
		return &NothingToJoinError{Name: c.Name, File: c.File, DataDir: c.DataDir}
	}
	return nil
}

// NothingToJoinError refuses to start a member that could only wait for ever.
type NothingToJoinError struct{ Name, File, DataDir string }

func (e *NothingToJoinError) Error() string {
	return fmt.Sprintf("%s is empty and %s declares no member %q: name a member of the cluster to join with --seed http://HOST:PORT, or wait to be told with --await-join", e.DataDir, e.File, e.Name)
}

func (d *Daemon) makeMember() error {
	c := d.opts.Config
	d.journal = journal.New(journal.Options{Boot: d.dir.Member().BootEpoch, Now: d.opts.Now, Metrics: d.registry})
	self := c.Self()
	d.member = member.New(member.Options{
		Dir: d.dir, DataDir: c.DataDir, FS: d.opts.FS,
		Name: c.Name, GRPCAddr: self.GRPCAddr, HTTPAddr: self.HTTPAddr,
		Declared: declared(c), Topology: c.Topology,
		Join: member.JoinOptions{Seeds: c.Join.Seeds, Rejoin: c.Join.Rejoin, Introducer: d.client},
		Tick: c.Election.Tick, Beat: d.beat, HeartbeatTicks: c.Election.HeartbeatTicks, ElectionTicks: c.Election.ElectionTicks,
		OnFatal:      func(err error) { d.fail("member", err) },
		SegmentBytes: c.Replication.LogSegment,
		OutboxBytes:  c.Outbox.MaxBytes, OutboxRetention: c.Outbox.Retention,
		Retention: member.Retention{
			LogBytes: c.Replication.LogKeep, PinBytes: c.Replication.PinCap, PinAge: c.Replication.PinAge,
			ArtifactTTL: c.Replication.ArtifactTTL, Rate: c.Replication.SnapshotRate,
		},
		Policy: membership.Policy{
			PromoteLag: uint64(c.Replication.PromoteLag), PromoteRounds: c.Replication.PromoteRounds,
			Round:      time.Duration(c.Election.ElectionTicks) * c.Election.Tick,
			LearnerTTL: c.Membership.LearnerTTL, ReplaceGrace: c.Membership.ReplaceGrace,
			ReplaceManual: c.Membership.ReplaceLost == "manual", RemovalGiveup: c.Membership.RemovalGiveup,
		},
		Scrub:        scrub(c.Replication),
		ManualReseed: c.Replication.Reseed == "manual", ReseedWindow: c.Replication.ReseedWindow,
		Version: d.opts.Version, Now: d.opts.Now, MaxDrift: c.Clock.MaxDrift, Logger: d.log, Metrics: d.registry, Journal: d.journal,
	})
	return nil
}

// scrub says in member's words what the file says: there 0 is "as usual", here it is "never" or "as fast as
// it goes".
func scrub(r config.Replication) member.Scrub {
	s := member.Scrub{Every: r.ScrubEvery, After: min(r.ScrubEvery, time.Minute), Rate: r.ScrubRate}
	if s.Every == 0 {
		s.Every = -1
	}
	if s.Rate == 0 {
		s.Rate = -1
	}
	return s
}

// declared are the members of the file; none for a member that it does not declare.
func declared(c *config.Config) []membership.Declared {
	var all []membership.Declared
	if !c.Declared {
		return all
	}
	for _, m := range c.Members {
		all = append(all, membership.Declared{Name: m.Name, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr})
	}
	return all
}

// makeFaults gives the member a fault table, if it is to take part in drills.
func (d *Daemon) makeFaults() error {
	if !d.opts.Config.Drills.Enabled {
		return nil
	}
	d.faults = peer.NewFaults(peer.FaultOptions{Metrics: d.registry, OnEnd: func(l peer.Lease, early bool) {
		d.journal.Add(ops.FaultEnded(l, early)) // there is one by the time that a fault ends
	}})
	d.onStop("faults", func(context.Context) error {
		d.faults.Close()
		return nil
	})
	return nil
}

func (d *Daemon) makeNetwork() error {
	o := peer.Options{
		Beat: d.beat,
		Self: d.member.SelfHello, Handler: d.member, Key: d.peerKey,
		Snapshots: d.member, Pins: d.member.Pins, Digests: d.member.Digests, Members: d.member, Faults: d.faults,
		Outboxes: d.member,
		OnStatus: d.member.PeerChanged, OnRefusedConnection: d.member.PeerGone,
		OnDuplicate: d.member.PeerDuplicated, OnClock: d.member.PeerClock, Now: d.opts.Now,
		Logger: d.log, Metrics: d.registry,
	}
	if d.tls != nil {
		o.TLS, o.DialTLS = d.tls.ForPeers(), d.tls.Dial
	}
	d.network = peer.New(o)
	return nil
}

// makeClient makes what speaks HTTP to other members, and to the seeds of a member that joins.
func (d *Daemon) makeClient() error {
	c := d.opts.Config
	o := httpd.ClientOptions{Self: c.Name, Faults: d.faults, PeerKey: d.peerToken(), ConnectTimeout: c.Forward.Connect, RequestTimeout: c.Forward.Request}
	if d.tls != nil {
		o.TLS = d.tls.Dial
	}
	d.client = httpd.NewClient(o)
	d.onStop("HTTP client", func(context.Context) error {
		d.client.Close()
		return nil
	})
	return nil
}

func (d *Daemon) makeSurface() (err error) {
	c := d.opts.Config
	d.ops, err = ops.New(ops.Options{
		Member:  d.member,
		Replica: func(g ident.GroupID) (ops.Replica, error) { return d.member.Replica(g) },
		Asker:   d.client, Teller: d.client, Recoverer: d.member,
		Data: d.member, Disk: d.lost,
		Crew: d.client, Faults: d.faults, MaxFault: c.Drills.MaxDuration,
		Outbox: d.member.Outbox, Exchange: d.client, Heard: d.heard,
		Journal: d.journal, Memory: d.dir, Problem: httpd.Problem, Logger: d.log,
		Now: d.opts.Now, QuorumTimeout: c.Replication.QuorumTimeout, StatusTimeout: c.Status.Member, FanOut: c.Forward.FanOut, JoinWait: c.Membership.JoinWait, MaxDrift: c.Clock.MaxDrift,
	})
	if err != nil {
		return err
	}
	d.onStop("operations", func(context.Context) error {
		d.ops.Close()
		return nil
	})
	h := httpd.Options{Ops: d.ops, Client: d.client, Faults: d.faults, PeerKey: d.peerToken(), Ack: c.Replication.Ack, Logger: d.log, Metrics: d.registry}
	if d.apiKeys != nil {
		h.Authorize = d.apiKeys.Allows
	} else if !c.TLS.RequireClientCert {
		h.Hosts = d.hosts
	}
	if d.tls != nil {
		h.TLS = d.tls.ForClients()
		if d.tls.Mutual() {
			h.PeerCert = d.tls.IsPeer
		}
	}
	d.http, err = httpd.New(h)
	return err
}

// lost is what of a group's directory is lost under this process.
func (d *Daemon) lost(g ident.GroupID) error {
	_, _, err := d.dir.Group(g).Current()
	return err
}

// heard is when each other member was last heard from.
func (d *Daemon) heard() map[ident.MemberID]time.Time {
	all := map[ident.MemberID]time.Time{}
	for _, p := range d.network.Peers() {
		if !p.LastHeard.IsZero() {
			all[p.ID] = p.LastHeard
		}
	}
	return all
}

// reload follows the files with keys and certificates.
func (d *Daemon) reload() {
	ctx, cancel := context.WithCancel(context.Background())
	d.run("reload", func() error {
		d.reloader.Run(ctx)
		return nil
	}, func(context.Context) error {
		cancel()
		return nil
	})
}

// serveMetrics answers scrapes and profilers on a listener of their own, away from clients.
func (d *Daemon) serveMetrics() {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", httpd.MetricsHandler(d.registry))
	mux.HandleFunc("GET /debug/pprof/{name}", profile)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	d.run("metrics", func() error {
		if err := s.Serve(d.metricsListener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, s.Shutdown)
}

// readSecrets reads the key that members show each other, the keys that clients show, and certificates.
func (d *Daemon) readSecrets() (err error) {
	c := d.opts.Config
	d.reloader = auth.NewReloader(d.log, d.registry)
	if c.Auth.PeerKeyFile != "" {
		if d.peerKey, err = auth.ReadPeerKey(c.Auth.PeerKeyFile); err != nil {
			return err
		}
	}
	if d.apiKeys, err = d.reloader.Keys(c.Auth.KeyFile, c.Auth.APIKey); err != nil {
		return err
	}
	if !c.TLS.Enabled() {
		return nil
	}
	t := c.TLS
	d.tls, err = d.reloader.TLS(auth.TLSFiles{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile, ClientCA: t.ClientCAFile, RequireClientCert: t.RequireClientCert})
	if err != nil {
		return err
	}
	for _, addr := range []string{c.Self().GRPCAddr, c.Self().HTTPAddr} { // others would refuse it: say so here
		if host, _, err := net.SplitHostPort(addr); err == nil {
			if err := d.tls.ServesName(host); err != nil {
				d.log.Warn("certificate does not fit the advertised address", slog.String("addr", addr), slog.Any("err", err))
			}
		}
	}
	return nil
}

// hosts are the names under which this cluster is asked.
func (d *Daemon) hosts() []string {
	var all []string
	add := func(addr string) {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			all = append(all, host)
		}
	}
	for _, m := range d.opts.Config.Members {
		add(m.HTTPAddr)
	}
	for _, m := range d.member.Roster().Members {
		add(m.HTTPAddr)
	}
	return all
}

// peerToken is the peer key as a header carries it; nil: members have none.
func (d *Daemon) peerToken() []byte {
	if d.peerKey == nil {
		return nil
	}
	return []byte(auth.PeerToken(d.peerKey))
}
