package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloadEvery is how often files are read again. A secret that is replaced is in use soon after; a
// file system that tells of changes by itself is not needed.
const reloadEvery = 5 * time.Second

// Reloader keeps what is made of files as they are on the disk: it reads them again and again, and when
// one holds something else, makes a new value of all of them. Where that fails, the old value stays in
// use, a line in the log and a metric say so, and the next change is tried again.
type Reloader struct {
	log     *slog.Logger
	reloads *prometheus.CounterVec // {what}
	stale   *prometheus.GaugeVec   // {what}
	expiry  prometheus.Gauge

	mu    sync.Mutex // guards files, and what each of them remembers
	files []*files
}

// files are those that one value is made of.
type files struct {
	what  string
	paths []string
	sum   [sha256.Size]byte // of what they held when they were last read
	make  func() error      // makes the value and puts it into use, or leaves the old one
}

// NewReloader makes a reloader that watches nothing yet.
func NewReloader(logger *slog.Logger, reg prometheus.Registerer) *Reloader {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r := &Reloader{
		log: logger,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_auth_reloads_total",
			Help: "Changed files that were put into use without a restart.",
		}, []string{"what"}),
		stale: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tidal_auth_reload_failed",
			Help: "1 while a changed file cannot be used and what it held before is in use.",
		}, []string{"what"}),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidal_auth_certificate_expiry_timestamp_seconds",
			Help: "When the certificate in use expires; 0 without one.",
		}),
	}
	if reg != nil {
		reg.MustRegister(r.reloads, r.stale, r.expiry)
	}
	return r
}

// watch makes the value for the first time and then whenever the files change.
func (r *Reloader) watch(what string, paths []string, make func() error) error {
	f := &files{what: what, paths: paths, make: make}
	f.sum = f.read() // before make: a change in between is seen by the next look
	if err := make(); err != nil {
		return err
	}
	r.reloads.WithLabelValues(what)
	r.stale.WithLabelValues(what).Set(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, f)
	return nil
}

// read sums up what the files hold, or why they cannot be read.
func (f *files) read() [sha256.Size]byte {
	h := sha256.New()
	for _, path := range f.paths {
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(err.Error())
		}
		one := sha256.Sum256(b)
		_, _ = h.Write(one[:]) // a hash does not fail
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Check looks at every file now.
func (r *Reloader) Check() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		sum := f.read()
		if sum == f.sum {
			continue
		}
		f.sum = sum
		if err := f.make(); err != nil {
			r.stale.WithLabelValues(f.what).Set(1)
			r.log.Error("changed file is not used, the old one stays in use", slog.String("what", f.what), slog.Any("err", err))
			continue
		}
		r.stale.WithLabelValues(f.what).Set(0)
		r.reloads.WithLabelValues(f.what).Inc()
		r.log.Info("changed file is in use", slog.String("what", f.what))
	}
}

// Run looks again and again until ctx ends.
func (r *Reloader) Run(ctx context.Context) {
	ticker := time.NewTicker(reloadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.Check()
		}
	}
}

// KeySet is a Keys that follows its file.
type KeySet struct{ now atomic.Pointer[Keys] }

// Allows reports whether key is one of those in force now.
func (s *KeySet) Allows(key string) bool { return s.now.Load().Allows(key) }

// Keys is LoadKeys, and follows the file from then on.
func (r *Reloader) Keys(path, fromEnv string) (*KeySet, error) {
	k, err := LoadKeys(path, fromEnv)
	if k == nil || err != nil {
		return nil, err
	}
	s := &KeySet{}
	s.now.Store(k)
	if path == "" {
		return s, nil
	}
	return s, r.watch("api_keys", []string{path}, func() error {
		k, err := LoadKeys(path, fromEnv)
		if err == nil {
			s.now.Store(k)
		}
		return err
	})
}
