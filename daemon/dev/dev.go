package dev

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/auth"
	"github.com/tidaldb/tidal/daemon/reach"
)

// Names returns the names of the members, in the order they are used.
func Names() []string {
	return []string{"us-east", "us-west", "ap-south", "eu-west", "eu-north", "sa-east", "af-south"}
}

// Options configures Run.
type Options struct {
	Nodes    int    // 1 to 7
	HTTPBase int    // member i listens on HTTPBase+i, i from 1
	GRPCBase int    // likewise
	Dir      string // kept and taken up again; empty: a temporary directory, removed at the end
	Empty    bool   // load no sample
	For      time.Duration
	Restart  bool // start a child that died again, after restartDelay
	JSON     bool // print api.DevReady as one line on Out; words go to Err
	// Set holds settings of the configuration, as "block.key=value", over those that dev makes.
	Set []string

	Exe string // the tidald binary
	Out io.Writer
	Err io.Writer
}

const (
	restartDelay = 2 * time.Second
	readyWithin  = 60 * time.Second
	stopWithin   = 10 * time.Second
)

// UsageError is an option that cannot be.
type UsageError struct{ Detail string }

func (e *UsageError) Error() string { return e.Detail }

func (o Options) validate() error {
	if o.Nodes < 1 || o.Nodes > len(Names()) {
		return &UsageError{fmt.Sprintf("--nodes %d: want 1 to %d", o.Nodes, len(Names()))}
	}
	for _, b := range []struct {
		flag string
		base int
	}{{"--http-base", o.HTTPBase}, {"--grpc-base", o.GRPCBase}} {
		if b.base < 1 || b.base+o.Nodes > 65535 {
			return &UsageError{fmt.Sprintf("%s %d: want 1 to %d", b.flag, b.base, 65535-o.Nodes)}
		}
	}
	if d := o.HTTPBase - o.GRPCBase; d > -o.Nodes && d < o.Nodes {
		return &UsageError{fmt.Sprintf("--http-base %d and --grpc-base %d: the ports of %d members overlap", o.HTTPBase, o.GRPCBase, o.Nodes)}
	}
	if _, err := o.settings(); err != nil {
		return err
	}
	if o.For < 0 {
		return &UsageError{fmt.Sprintf("--for %s: want a positive duration", o.For)}
	}
	return nil
}

// Run starts the cluster and returns when ctx ends or Options.For has passed, after every child has
// ended. An error says why the cluster could not be started or kept.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	dir, cleanup, err := o.directory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanup()) }()
	members := o.members(dir)
	if err := checkPorts(members); err != nil {
		return err
	}
	config := filepath.Join(dir, configName)
	settings, err := o.settings()
	if err != nil {
		return err
	}
	if err := writeConfig(dir, config, members, settings); err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	family := newFamily(o, config, members, cancel)
	defer family.stop()
	if err := family.start(); err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "starting %d members in %s\n", o.Nodes, dir)
	c := newClient(members)
	if err := c.waitReady(ctx, readyWithin); err != nil {
		return fmt.Errorf("wait for the members: %w%s", err, family.lastWords())
	}
	if !o.Empty {
		if err := loadSample(ctx, c, o.Err, filepath.Join(dir, "sample")); err != nil {
			return fmt.Errorf("load the sample: %w", err)
		}
	}
	if err := o.announce(ctx, c, dir, family.members()); err != nil {
		return err
	}
	var timeUp <-chan time.Time
	if o.For > 0 {
		t := time.NewTimer(o.For)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case <-timeUp:
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return cause
		}
		return nil
	}
}

const (
	configName = "tidal.yaml"
	// configHead is the first line of the configuration, by which the directory is known again.
	configHead = "# Written by tidald dev at every start.\n"
)

func (o Options) directory() (dir string, cleanup func() error, err error) {
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "tidal-dev-")
		if err != nil {
			return "", nil, fmt.Errorf("make a temporary directory: %w", err)
		}
		return dir, func() error { return os.RemoveAll(dir) }, nil
	}
	dir, err = filepath.Abs(o.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", nil, fmt.Errorf("make the directory %s: %w", o.Dir, err)
	}
	if err := refuseForeign(dir); err != nil {
		return "", nil, err
	}
	return dir, func() error { return nil }, nil
}

// refuseForeign refuses a directory that holds something and is none of an earlier run: what is in it would be
// written over, tidal.yaml for one. A key alone is what a first run left that was cut short. The directory of a
// member may be a disk that is mounted there: the member judges it.
func refuseForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look into %s: %w", dir, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return e.Name() == "lost+found" || e.Name() == "peer.key" || e.IsDir() && slices.Contains(Names(), e.Name())
	})
	if len(entries) == 0 {
		return nil
	}
	config, err := os.ReadFile(filepath.Join(dir, configName))
	if err == nil && bytes.HasPrefix(config, []byte(configHead)) {
		return nil
	}
	return &UsageError{fmt.Sprintf("--dir: %s holds %s, and is no directory of an earlier run (its %s does not say so): name one that is empty or not there; nothing was changed",
		dir, entries[0].Name(), configName)}
}

func (o Options) members(dir string) []api.DevMember {
	var ms []api.DevMember
	for i := range o.Nodes {
		name := Names()[i]
		ms = append(ms, api.DevMember{
			Name: name,
			HTTP: "http://127.0.0.1:" + strconv.Itoa(o.HTTPBase+i+1),
			GRPC: "127.0.0.1:" + strconv.Itoa(o.GRPCBase+i+1),
			Dir:  filepath.Join(dir, name),
		})
	}
	return ms
}

// checkPorts finds a port that is taken before a child meets it, so that the message names it.
func checkPorts(members []api.DevMember) error {
	for _, m := range members {
		for _, use := range []struct{ what, addr, where string }{
			{"HTTP of " + m.Name, m.HTTP[len("http://"):], "--http-base"},
			{"gRPC of " + m.Name, m.GRPC, "--grpc-base"},
		} {
			l, err := reach.Listen(use.what, use.addr, use.where)
			if err != nil {
				return err
			}
			if err := l.Close(); err != nil {
				return fmt.Errorf("try the port %s: %w", use.addr, err)
			}
		}
	}
	return nil
}

// settings are the blocks of the configuration beside the members: block, key, value.
func (o Options) settings() (map[string]map[string]string, error) {
	all := map[string]map[string]string{
		"election": {"tick": "20ms", "heartbeat_ticks": "1", "election_ticks": "15"},
		"drills":   {"enabled": "true"},
	}
	for _, s := range o.Set {
		key, value, ok := strings.Cut(s, "=")
		block, key, nested := strings.Cut(key, ".")
		if !ok || !nested || block == "" || key == "" || value == "" || strings.ContainsAny(s, "\n:#") {
			return nil, &UsageError{fmt.Sprintf("--set %q: want block.key=value", s)}
		}
		if all[block] == nil {
			all[block] = map[string]string{}
		}
		all[block][key] = value
	}
	return all, nil
}

// writeConfig writes the topology file of members with the settings and, where there is none, the
// peer key.
func writeConfig(dir, path string, members []api.DevMember, settings map[string]map[string]string) error {
	key := filepath.Join(dir, "peer.key")
	if _, err := os.Stat(key); errors.Is(err, os.ErrNotExist) {
		if err := auth.MakePeerKey(key, rand.Reader); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("look for the peer key: %w", err)
	}
	b := []byte(configHead + "members:\n")
	for _, m := range members {
		b = fmt.Appendf(b, "  - name: %s\n    grpc_addr: %s\n    http_addr: %s\n", m.Name, m.GRPC, m.HTTP[len("http://"):])
	}
	if settings["auth"] == nil {
		settings["auth"] = map[string]string{}
	}
	settings["auth"]["peer_key_file"] = key
	for _, block := range slices.Sorted(maps.Keys(settings)) {
		b = fmt.Appendf(b, "%s:\n", block)
		for _, key := range slices.Sorted(maps.Keys(settings[block])) {
			b = fmt.Appendf(b, "  %s: %s\n", key, settings[block][key])
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// announce prints what there is and what to do with it.
func (o Options) announce(ctx context.Context, c *client, dir string, members []api.DevMember) error {
	w := o.Out
	if o.JSON {
		line, err := json.Marshal(api.DevReady{Ready: true, Dir: dir, Members: members})
		if err != nil {
			return fmt.Errorf("encode the first line: %w", err)
		}
		if _, err := fmt.Fprintf(o.Out, "%s\n", line); err != nil {
			return fmt.Errorf("print the first line: %w", err)
		}
		w = o.Err
	}
	if !o.Empty {
		if err := c.printFeed(ctx, w); err != nil {
			return err
		}
	}
	if err := c.printStatus(ctx, w); err != nil {
		return err
	}
	ctl := o.ctl()
	_, err := fmt.Fprintf(w, `
Try, in another terminal:
  curl -s '%[1]s/feed?limit=5'
  curl -s -X POST %[1]s/signals -d '{"item":"m0001","signal":"view"}'
  %[7]s --endpoint %[2]s status
  kill -9 %[3]d          # %[4]s; %[5]s
One member more, which is yours to stop:
%[8]s
Ctrl-C stops everything else. Logs are in %[6]s.
`, members[0].HTTP, members[min(1, len(members)-1)].HTTP, members[0].PID, members[0].Name, o.afterDeath(), dir, ctl, o.oneMore(ctl, dir, members))
	return err
}

// afterDeath says what becomes of a member that was killed.
func (o Options) afterDeath() string {
	if o.Restart {
		return "it is started again after " + restartDelay.String()
	}
	return "it stays dead (--restart=off)"
}

// ctl is how tidalctl is called: the binary beside this one, or from the source.
func (o Options) ctl() string {
	beside := filepath.Join(filepath.Dir(o.Exe), "tidalctl")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return "go run ./cmd/tidalctl"
}

// oneMore is the two lines that add a member.
func (o Options) oneMore(ctl, dir string, members []api.DevMember) string {
	name := "extra"
	if n := len(members); n < len(Names()) {
		name = Names()[n]
	}
	http, grpc := "127.0.0.1:"+strconv.Itoa(o.HTTPBase+len(members)+1), "127.0.0.1:"+strconv.Itoa(o.GRPCBase+len(members)+1)
	return fmt.Sprintf(`  %s serve --config %s --name %s --data-dir %s --advertise-http %s --advertise-grpc %s --await-join 2> %s &
  %s --endpoint http://%s join --seed %s --yes`,
		o.Exe, filepath.Join(dir, configName), name, filepath.Join(dir, name), http, grpc, filepath.Join(dir, name+".log"),
		ctl, http, members[0].HTTP)
}
