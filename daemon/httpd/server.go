// Package httpd is the HTTP surface of a member: it decodes requests strictly, runs them here or
// forwards them once to the leader, and encodes answers and problems.
//
// What it promises: every route is a row of one table (routes) and every error a row of another
// (api.Codes, through problem); every answer names the member, the term and the applied index it
// reflects; a write that was forwarded is sent at most once, and its error says whether anything may
// have happened; nothing outside can crash it, and a handler that panics costs one answer.
//
// Callers: daemon (wiring). It calls ops for everything it does; ops asks other members through
// Client. Routes: ROUTES.md. Codes: ../api/CODES.md.
package httpd

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/peer"
)

const (
	maxHeaderBytes    = 32 << 10
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second // a whole request
	writeTimeout      = 60 * time.Second // a whole answer, from the end of the request's header
	idleTimeout       = 2 * time.Minute  // longer than Client keeps a connection
)

// Options configures New.
type Options struct {
	Ops    *ops.Ops // required
	Client *Client  // required; its owner closes it after Stop

	// PeerKey is what a marked request must carry. nil: PeerCert decides.
	PeerKey []byte
	// PeerCert reports whether a connection showed a member's certificate. nil without PeerKey: members
	// have no credential, and the marker alone counts; all it does is that the request is not forwarded.
	PeerCert func(*tls.ConnectionState) bool
	// TLS serves. nil: plain text.
	TLS *tls.Config
	// Hosts are the names, beside loopback's, under which this member is asked. nil: under any. It is for
	// a surface without keys: a page of another site, whose name was made to resolve to this machine,
	// must not reach it through the browser of somebody who is here.
	Hosts func() []string
	// MaxConnections bounds the connections of clients. 0: half of the files that the process may open.
	MaxConnections int
	// Authorize reports whether a bearer key may use the surface. nil: everyone may.
	Authorize func(key string) bool
	// LeaderWait is how long a request that needs the leader waits for one to be known and to answer
	// a connection: about one election. 0: 2 s.
	LeaderWait time.Duration
	// Heartbeat is how long a stream of events is silent at most. 0: 5 s.
	Heartbeat time.Duration
	// StreamIdle is how long a stream of records may be silent. 0: 2 min.
	StreamIdle time.Duration
	// Faults is this member's fault table. nil: there are no drills.
	Faults *peer.Faults
	// Ack is what a write waits for that does not say: api.AckQuorum or api.AckLeader. Empty: quorum.
	Ack string

	Logger  *slog.Logger          // nil: silent
	Metrics prometheus.Registerer // nil: kept, not exported
}

// Server serves the surface. New makes it, Serve runs it, Stop ends it.
type Server struct {
	opts     Options
	log      *slog.Logger
	ops      *ops.Ops
	client   *Client
	gather   gatherer
	metrics  *metrics
	mux      *http.ServeMux
	origin   *http.CrossOriginProtection
	document document
	http     *http.Server

	// end ends the context of every request with errStopping.
	end context.CancelCauseFunc
	// draining is done when Stop begins: a stream of records, which has no end of its own, ends then.
	draining context.Context

	mu struct {
		sync.Mutex
		stopping bool
		running  sync.WaitGroup // requests; nothing is added once stopping is set
	}
}

// errStopping is the cause of every wait that Stop cuts short.
var errStopping = errors.New("the member is stopping")

// New makes a server. It starts nothing.
func New(opts Options) (*Server, error) {
	if opts.Ops == nil || opts.Client == nil {
		return nil, errors.New("httpd: Ops and Client are required")
	}
	if opts.LeaderWait == 0 {
		opts.LeaderWait = 2 * time.Second
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = 5 * time.Second
	}
	if opts.StreamIdle == 0 {
		opts.StreamIdle = 2 * time.Minute
	}
	if opts.Ack == "" {
		opts.Ack = api.AckQuorum
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: opts, log: opts.Logger, ops: opts.Ops, client: opts.Client, origin: http.NewCrossOriginProtection()}
	s.metrics = newMetrics(opts.Metrics, s.gather.waiting)
	s.mux = s.newMux(s.routes())
	base, end := context.WithCancelCause(context.Background())
	s.end = end
	s.gather.client, s.gather.metrics, s.gather.base = s.client, s.metrics, base
	s.gather.cluster, s.gather.whoLeads = func() string { return s.ops.Cluster().String() }, s.ops.Leader
	s.http = &http.Server{
		Handler:           s,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug), // about connections, not about us
	}
	var drain context.CancelFunc
	s.draining, drain = context.WithCancel(base)
	s.http.RegisterOnShutdown(drain)
	return s, nil
}

// Serve answers requests on ln until Stop, and returns nil then. Its owner runs it in a goroutine
// and waits for it after Stop. It may be called for several listeners.
func (s *Server) Serve(ln net.Listener) error {
	ln = s.limit(ln)
	if s.opts.TLS != nil {
		ln = tls.NewListener(ln, s.opts.TLS)
	}
	if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", ln.Addr(), err)
	}
	return nil
}

// Stop takes no more requests and waits for those that run. When ctx ends first, it cuts them short
// and returns the cause. When it returns, no request is running.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	s.end(errStopping)
	if err != nil {
		err = fmt.Errorf("stop HTTP: %w", errors.Join(context.Cause(ctx), s.http.Close()))
	}
	s.mu.Lock()
	s.mu.stopping = true
	s.mu.Unlock()
	s.mu.running.Wait()
	s.gather.stop()
	return err
}

// enter counts a request in, unless the server is stopping.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.stopping {
		s.mu.running.Add(1)
	}
	return !s.mu.stopping
}

// request is a request on its way to a handler.
type request struct {
	*http.Request
	body   []byte // whole, within the route's bound
	params params
	marked bool          // another member forwarded it: it runs here or nowhere
	within time.Duration // how long it may run where it is forwarded to; 0: as any

	// until is when the caller's time is over, zero where it gave none. The context of Request ends then,
	// caller only when the caller is gone; nil: the two are the same.
	until  time.Time
	caller context.Context
}

// newMux registers every route; a known path with another method and an unknown path are problems.
func (s *Server) newMux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	allow := map[string][]string{}
	for _, rt := range routes {
		mux.Handle(rt.method+" "+rt.path, s.endpoint(rt))
		allow[rt.path] = append(allow[rt.path], rt.method)
	}
	for p, methods := range allow {
		list := strings.Join(methods, ", ")
		mux.Handle(p, s.endpoint(route{path: p, handle: func(w http.ResponseWriter, r *request) error {
			w.Header().Set("Allow", list)
			return api.NewProblem(api.CodeMethodNotAllowed, fmt.Sprintf("%s has no %s, only %s", p, quoted(r.Method), list))
		}}))
	}
	mux.Handle("/", s.endpoint(route{path: "none", handle: func(_ http.ResponseWriter, r *request) error {
		return api.NewProblem(api.CodeNoRoute, "there is no route "+quoted(r.RequestURI))
	}}))
	return mux
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler) // Stop has closed the connection already
	}
	defer s.mu.running.Done()
	if p := r.URL.EscapedPath(); path.Clean(p) != p {
		// The mux would redirect; a path that is not clean is no route.
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = "/", ""
	}
	s.mux.ServeHTTP(w, r)
}

// endpoint makes the handler of a route: what every request goes through, outermost first.
func (s *Server) endpoint(rt route) http.Handler {
	m := s.metrics.route(rt)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				s.metrics.panics.Inc()
				s.log.Error("handler panicked", slog.String("route", rt.path), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
				if rec.status != 0 {
					panic(http.ErrAbortHandler) // the answer has begun: break it off, visibly
				}
				writeProblem(rec, api.NewProblem(api.CodeInternal, "the handler of this route failed; the member's log has the details"))
			}
			m.observe(rec.status, time.Since(start))
		}()
		p := s.ops.Position()
		setPosition(rec.Header(), p.Member, p.Term, p.Applied)
		if err := s.serve(rec, r, rt); err != nil {
			pr := problem(err)
			if pr.Code == api.CodeInternal {
				s.log.Error("request failed", slog.String("route", rt.path), slog.Any("err", err))
			}
			writeProblem(rec, pr)
		}
	})
}

// serve checks what every route has in common and hands the request to where it runs.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route) error {
	req := &request{Request: r}
	if rt.method == "" { // no route, or none with this method
		return rt.handle(w, req)
	}
	if err := s.checkHost(r); err != nil {
		return err
	}
	var err error
	if req.marked, err = s.fromPeer(r); err != nil {
		return err
	}
	if req.marked {
		s.dropped(r)
	}
	if err := s.authorize(req, rt); err != nil {
		return err
	}
	if err := s.checkCluster(r); err != nil {
		return err
	}
	if req.params, err = parseParams(r.URL.RawQuery, rt.params); err != nil {
		return err
	}
	if rt.path != pathIngest && req.params["follow"] == "" { // a stream has no end of its own
		stop, err := req.bound()
		if err != nil {
			return err
		}
		defer stop()
		r = req.Request
	}
	if rt.maxBody == aStream && req.marked {
		r.Body = &cuttable{r.Body, s.opts.Faults, peer.Party{Name: r.Header.Get(api.HeaderFrom)}}
	}
	if rt.maxBody > 0 {
		if req.body, err = readBody(w, r, rt.maxBody); err != nil {
			return err
		}
	}
	if name, given := req.params["region"]; rt.class == inRegion && given {
		return s.onMember(w, req, name, rt.handle)
	}
	if rt.class == onLeader {
		return s.onLeader(w, req, rt.handle)
	}
	return rt.handle(w, req)
}

// fromPeer reports whether another member forwarded r. Where members have a key or certificates, the
// marker without them is an outsider's and is ignored; with a wrong key it is an error, so that two members whose keys
// differ do not forward to each other in turns.
func (s *Server) fromPeer(r *http.Request) (bool, error) {
	if r.Header.Get(api.HeaderInternal) == "" {
		return false, nil
	}
	key := r.Header.Get(api.HeaderPeerKey)
	switch {
	case len(s.opts.PeerKey) == 0:
		return s.opts.PeerCert == nil || s.opts.PeerCert(r.TLS), nil
	case key == "":
		return false, nil
	case subtle.ConstantTimeCompare([]byte(key), s.opts.PeerKey) != 1:
		return false, api.NewProblem(api.CodeUnauthorized, "the peer key is wrong: do all members have the same?")
	}
	return true, nil
}

// authorize asks for a bearer key, which another member need not have, nor one that is about to become
// a member: it shows the peer credential, without the marker.
func (s *Server) authorize(r *request, rt route) error {
	if s.opts.Authorize == nil || rt.open || r.marked && s.peersHaveCredential() || rt.forCandidates() && s.showsCredential(r.Request) {
		return nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || !s.opts.Authorize(strings.TrimSpace(key)) {
		return api.NewProblem(api.CodeUnauthorized, "this route needs a valid key: Authorization: Bearer KEY")
	}
	return nil
}

// peersHaveCredential reports whether a marked request was proved to be a member's.
func (s *Server) peersHaveCredential() bool { return len(s.opts.PeerKey) > 0 || s.opts.PeerCert != nil }

// showsCredential reports whether a request that need not be marked comes from who has the peer credential.
func (s *Server) showsCredential(r *http.Request) bool {
	if len(s.opts.PeerKey) > 0 {
		return subtle.ConstantTimeCompare([]byte(r.Header.Get(api.HeaderPeerKey)), s.opts.PeerKey) == 1
	}
	return s.opts.PeerCert != nil && s.opts.PeerCert(r.TLS)
}

// checkCluster refuses a request that names another cluster.
func (s *Server) checkCluster(r *http.Request) error {
	want := r.Header.Get(api.HeaderCluster)
	if want == "" {
		return nil
	}
	if have := s.ops.Cluster().String(); have != want {
		return api.NewProblem(api.CodeWrongCluster, fmt.Sprintf("this member belongs to cluster %s, not %s", have, quoted(want)))
	}
	return nil
}

// recorder remembers the status of an answer; 0: none has begun.
type recorder struct {
	http.ResponseWriter
	status int
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// setPosition says who answers and what the answer reflects.
func setPosition(h http.Header, member string, term, index uint64) {
	h[api.HeaderMember] = []string{member}
	setReflected(h, term, index)
}

func setReflected(h http.Header, term, index uint64) {
	h[api.HeaderTerm] = []string{strconv.FormatUint(term, 10)}
	h[api.HeaderIndex] = []string{strconv.FormatUint(index, 10)}
}
