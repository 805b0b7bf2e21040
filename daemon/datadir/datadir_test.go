package datadir_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/durable/durabletest"
	"github.com/tidaldb/tidal/daemon/ident"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("DATADIR_TEST_HOLD"); dir != "" {
		hold(dir)
	}
	goleak.VerifyTestMain(m)
}

const root = "/var/tidal"

func cluster() ident.ClusterID { return ident.ClusterID{0xc1} }

// open opens the directory of n1 with randomness that is the same every time.
func open(fs vfs.FS) (*datadir.Dir, error) {
	return datadir.Open(datadir.Options{Path: root, FS: fs, Name: "n1", Rand: rand.NewChaCha8([32]byte{1})})
}

func mustOpen(t *testing.T, fs vfs.FS) *datadir.Dir {
	t.Helper()
	d, err := open(fs)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// build makes a generation of one file in each directory.
func build(fs vfs.FS) func(logDir, stateDir string) error {
	return func(logDir, stateDir string) error {
		for _, dir := range []string{logDir, stateDir} {
			if err := durable.MkdirAll(fs, dir, 0o700); err != nil {
				return err
			}
			if err := durable.WriteFile(fs, fs.PathJoin(dir, "content"), []byte(dir)); err != nil {
				return err
			}
		}
		return nil
	}
}

// told is what a member said to others, who rely on it.
type told struct {
	incarnation ident.Incarnation
	epoch       uint64
	admitted    bool
	term        uint64
	added       bool
}

// live is a member's life up to its second group; it keeps t at what was promised. It goes on from
// wherever it was.
func live(fs vfs.FS, t *told) (err error) {
	d, err := open(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	t.incarnation, t.epoch = d.Member().Incarnation, d.Member().BootEpoch
	if err := d.Admit(cluster(), 2, []byte("genesis")); err != nil {
		return err
	}
	t.admitted = true
	t.term = d.Vote(0).Term
	for term := t.term + 1; term < 4; term++ {
		if err := d.SetVote(0, datadir.Vote{Term: term, Vote: 2}); err != nil {
			return err
		}
		t.term = term
	}
	if _, ok, err := d.Group(0).Current(); ok || err != nil {
		t.added = t.added || ok
		return err
	}
	if _, err := d.Group(0).Birth(build(fs)); err != nil {
		return err
	}
	if err := d.AddGroup(0); err != nil {
		return err
	}
	t.added = true
	return d.Group(0).Clean()
}

// verify reports whether what was told still holds.
func verify(fs vfs.FS, t told) (err error) {
	d, err := open(fs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m := d.Member()
	if t.epoch > 0 && (m.Incarnation != t.incarnation || m.BootEpoch <= t.epoch) {
		return fmt.Errorf("boot %d of %s, after boot %d of %s", m.BootEpoch, m.Incarnation, t.epoch, t.incarnation)
	}
	if t.admitted && (m.ID != 2 || m.Cluster != cluster() || string(m.Genesis) != "genesis") {
		return fmt.Errorf("it is member %s of cluster %s with genesis %q", m.ID, m.Cluster, m.Genesis)
	}
	if v := d.Vote(0); v.Term < t.term || v.Term > 0 && v.Vote != 2 {
		return fmt.Errorf("voted %v, promised term %d", v, t.term)
	}
	gen, ok, err := d.Group(0).Current()
	if err != nil || ok != slices.Contains(m.Groups, 0) || t.added && !ok {
		return fmt.Errorf("generation %v, %t, %w, groups %v", gen, ok, err, m.Groups)
	}
	if ok {
		for _, dir := range []string{d.Group(0).LogDir(gen), d.Group(0).StateDir(gen)} {
			if got, err := durable.ReadFile(fs, fs.PathJoin(dir, "content"), 1<<10); err != nil || string(got) != dir {
				return fmt.Errorf("%s holds %q, %w", dir, got, err)
			}
		}
	}
	return nil
}

// Whatever was told before a crash holds after it, also after a second crash on the way back; and
// the life that was cut short can go on.
func TestDir_SurvivesTwoCrashesAtEveryChange(t *testing.T) {
	t.Parallel()
	var first, second told
	resume := func(fs vfs.FS) error {
		second = first
		return live(fs, &second)
	}
	durabletest.Sweep(t,
		func(vfs.FS) { first = told{} },
		func(fs vfs.FS) error { return live(fs, &first) },
		func(t *testing.T, disk *vfs.MemFS, _ bool) {
			durabletest.Again(t, disk, resume, func(t *testing.T, disk *vfs.MemFS, done bool) {
				if err := errors.Join(verify(disk, second), verify(disk, second)); err != nil {
					t.Error(err)
				}
				if done && (!second.admitted || !second.added || second.term != 3) {
					t.Errorf("a whole life told %+v", second)
				}
			})
		})
}

// A process that is killed leaves in the page cache what is not on the disk. The next one relies on
// it only once it is.
func TestOpen_MakesDurableWhatItReads(t *testing.T) {
	t.Parallel()
	for cut, done := 0, false; !done; cut++ {
		mem, n := vfs.NewCrashableMem(), 0
		killed := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
				n++
			}
			if n > cut {
				return durabletest.ErrPowerLost
			}
			return nil
		}))
		done = live(killed, &told{}) == nil
		d := mustOpen(t, mem)
		m, vote := d.Member(), d.Vote(0)
		now := told{incarnation: m.Incarnation, epoch: m.BootEpoch, admitted: m.ID != 0, term: vote.Term, added: len(m.Groups) > 0}
		if err := verify(mem.CrashClone(vfs.CrashCloneCfg{}), now); err != nil {
			t.Fatalf("killed after %d changes: %v", cut, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// One call fails, those after it would succeed. The error surfaces, nothing panics, no later write
// passes for durable, and what was told holds.
func TestDir_FailsClosedAtEveryError(t *testing.T) {
	t.Parallel()
	for at := int32(0); ; at++ {
		mem := vfs.NewMem()
		counter := &errorfs.Counter{Injector: errorfs.OnIndex(at)}
		var now told
		err := live(errorfs.Wrap(mem, counter), &now)
		if counter.Load() == 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("with an error in call %d: %v", at, err)
		}
		if err := verify(mem, now); err != nil {
			t.Fatalf("with an error in call %d: %v", at, err)
		}
	}
}

func TestSetVote_AnErrorIsFinal(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	var now told
	if err := live(mem, &now); err != nil {
		t.Fatal(err)
	}
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData {
			return errorfs.ErrInjected
		}
		return nil
	})}
	d := mustOpen(t, errorfs.Wrap(mem, broken))
	broken.On()
	if err := d.SetVote(0, datadir.Vote{Term: 9, Vote: 2}); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("SetVote = %v, want the error of the sync", err)
	}
	broken.Off()
	for name, err := range map[string]error{
		"SetVote":  d.SetVote(0, datadir.Vote{Term: 10, Vote: 2}),
		"AddGroup": d.AddGroup(0),
		"Admit":    d.Admit(cluster(), 2, nil),
	} {
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("%s = %v, want the error of the sync", name, err)
		}
	}
	if got := d.Vote(0); got.Term != 3 {
		t.Errorf("Vote = %v, want what was promised", got)
	}
	if err := errors.Join(d.Close(), verify(mem, now)); err != nil {
		t.Error(err)
	}
}

func TestDir_RefusesWhatComesInTheWrongOrder(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	d := mustOpen(t, mem)
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s = nil", what)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	birth := func() error {
		_, err := d.Group(0).Birth(build(mem))
		return err
	}
	refused("SetVote of a fresh member", d.SetVote(0, datadir.Vote{Term: 1}))
	refused("Birth in a fresh member", birth())
	refused("Admit as 0", d.Admit(cluster(), 0, nil))
	refused("Admit to no cluster", d.Admit(ident.ClusterID{}, 1, nil))
	must(d.Admit(cluster(), 2, []byte("genesis")))
	must(d.Admit(cluster(), 2, []byte("genesis")))
	must(d.Admit(cluster(), 3, nil)) // nothing was opened: it may be given another id
	must(d.Admit(cluster(), 2, []byte("genesis")))
	refused("Admit to another cluster", d.Admit(ident.ClusterID{9}, 2, nil))
	refused("AddGroup of nothing", d.AddGroup(0))
	must(d.SetVote(0, datadir.Vote{Term: 1}))
	must(birth())
	must(birth())
	if _, ok, err := d.Group(0).Current(); ok || err != nil {
		t.Errorf("Current of a group that was not added = %t, %v", ok, err)
	}
	must(d.AddGroup(0))
	must(d.AddGroup(0))
	refused("Birth of what was born", birth())
	refused("Admit as another", d.Admit(cluster(), 3, nil))
	refused("PrepareBirth of what was born", d.Group(0).PrepareBirth())
	must(d.SetVote(0, datadir.Vote{Term: 2, Vote: 1}))
	refused("another vote", d.SetVote(0, datadir.Vote{Term: 2, Vote: 2}))
	refused("an earlier term", d.SetVote(0, datadir.Vote{Term: 1}))
	if got := d.Vote(0); got != (datadir.Vote{Term: 2, Vote: 1}) {
		t.Errorf("Vote = %v", got)
	}
	must(d.Close())
	if err := d.SetVote(0, datadir.Vote{Term: 3}); !errors.Is(err, datadir.ErrClosed) {
		t.Errorf("SetVote after Close = %v, want ErrClosed", err)
	}
	if err := d.Close(); !errors.Is(err, datadir.ErrClosed) {
		t.Errorf("second Close = %v, want ErrClosed", err)
	}
}

// A group is born by an artifact that was fetched, whatever an earlier attempt left, and counts once it
// was added.
func TestGroup_BirthByInstall(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	d := mustOpen(t, mem)
	if err := errors.Join(d.Admit(cluster(), 2, nil), d.SetVote(0, datadir.Vote{Term: 4})); err != nil {
		t.Fatal(err)
	}
	g := d.Group(0)
	arrive := func() {
		t.Helper()
		if err := errors.Join(g.PrepareBirth(), mem.MkdirAll(g.IncomingDir("a1"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	arrive()
	if _, err := g.Install("a1", nil); err == nil {
		t.Error("Install of a group that was not born, without a log, = nil")
	}
	for range 2 { // the second time after a crash before AddGroup
		arrive()
		gen, err := g.Install("a1", func(dir string) error { return mem.MkdirAll(dir, 0o700) })
		if want := (datadir.Generation{Log: 1, State: 1}); err != nil || gen != want {
			t.Fatalf("Install = %v, %v, want %v", gen, err, want)
		}
		if _, ok, err := g.Current(); ok || err != nil {
			t.Errorf("Current before AddGroup = %t, %v", ok, err)
		}
	}
	if err := d.AddGroup(0); err != nil {
		t.Fatal(err)
	}
	if gen, ok, err := g.Current(); !ok || err != nil || gen.State != 1 {
		t.Errorf("Current = %v, %t, %v", gen, ok, err)
	}
}

// files returns the content of everything below the root but the lock.
func files(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case name == "LOCK":
		case info.IsDir():
			all[path] = "directory"
			maps.Copy(all, files(t, fs, path))
		default:
			b, err := durable.ReadFile(fs, path, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(b)
		}
	}
	return all
}

func TestOpen_RefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	remove := func(name string) func(fs vfs.FS) error {
		return func(fs vfs.FS) error { return fs.RemoveAll(fs.PathJoin(root, name)) }
	}
	flip := func(name string, at int) func(fs vfs.FS) error {
		return func(fs vfs.FS) error {
			path := fs.PathJoin(root, name)
			b, err := durable.ReadFile(fs, path, 1<<20)
			if err != nil {
				return err
			}
			b[at] ^= 1
			return durable.WriteFile(fs, path, b)
		}
	}
	inode := uint64(1)
	opts := func(fs vfs.FS) datadir.Options {
		return datadir.Options{Path: root, FS: fs, Name: "n1", FileID: func(string) (datadir.FileID, error) { return datadir.FileID{Inode: inode}, nil }}
	}
	const marker = "groups/0/marker.current.000001.log-000001.state-000001"
	for _, tc := range []struct {
		name  string
		spoil func(fs vfs.FS) error
		opts  func(*datadir.Options)
		want  string // in the message
		as    any
		wayOn bool
	}{
		{name: "member damaged", spoil: flip("member", 30), want: "member is corrupt", as: new(*durable.CorruptError), wayOn: true},
		{name: "member missing", spoil: remove("member"), want: "member is corrupt: it is missing", as: new(*durable.CorruptError), wayOn: true},
		{name: "votes damaged", spoil: flip("votes", 4096+8192+40), want: "votes is corrupt", as: new(*durable.CorruptError), wayOn: true},
		{name: "votes missing", spoil: remove("votes"), want: "votes is corrupt: it is missing", as: new(*durable.CorruptError), wayOn: true},
		{name: "groups missing", spoil: remove("groups"), want: "group 0", as: new(*datadir.LostGroupError), wayOn: true},
		{name: "group missing", spoil: remove("groups/0"), want: "group 0", as: new(*datadir.LostGroupError), wayOn: true},
		{name: "marker missing", spoil: remove(marker), want: "no marker", as: new(*datadir.LostGroupError), wayOn: true},
		{name: "log missing", spoil: remove("groups/0/log-000001"), want: "log-000001", as: new(*datadir.LostGroupError), wayOn: true},
		{name: "state missing", spoil: remove("groups/0/state-000001"), want: "state-000001", as: new(*datadir.LostGroupError), wayOn: true},
		{
			name: "marker of nonsense", want: "the marker names", as: new(*durable.CorruptError), wayOn: true,
			spoil: func(fs vfs.FS) error { return fs.Rename(fs.PathJoin(root, marker), fs.PathJoin(root, marker)+"x") },
		},
		{name: "another name", want: `belongs to member "n1", not to "n2"`, as: new(*datadir.WrongNameError), opts: func(o *datadir.Options) { o.Name = "n2" }},
		{
			name: "copied", want: "copied_data_dir", as: new(*datadir.CopiedError), wayOn: true,
			opts: func(o *datadir.Options) {
				o.FileID = func(string) (datadir.FileID, error) { return datadir.FileID{Inode: inode + 1}, nil }
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewMem()
			d, err := datadir.Open(opts(mem))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Admit(cluster(), 2, nil), d.SetVote(0, datadir.Vote{Term: 1})); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Group(0).Birth(build(mem)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.AddGroup(0), d.SetVote(0, datadir.Vote{Term: 2}), d.Close()); err != nil {
				t.Fatal(err)
			}
			if tc.spoil != nil {
				if err := tc.spoil(mem); err != nil {
					t.Fatal(err)
				}
			}
			before := files(t, mem, root)
			o := opts(mem)
			if tc.opts != nil {
				tc.opts(&o)
			}
			for range 2 {
				_, err := datadir.Open(o)
				if err == nil || !errors.As(err, tc.as) || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("Open = %v, want a %T with %q", err, tc.as, tc.want)
				}
				if way := strings.Contains(err.Error(), "tidalctl members replace n1"); way != tc.wayOn {
					t.Errorf("Open = %v: names the way on: %t, want %t", err, way, tc.wayOn)
				}
			}
			if after := files(t, mem, root); !maps.Equal(before, after) {
				t.Errorf("the refusal changed the directory:\n%q\nis now\n%q", before, after)
			}
		})
	}
}

func TestClean_KeepsWhatIsCurrentAndWhatWasKept(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	if err := live(mem, &told{}); err != nil {
		t.Fatal(err)
	}
	const group = root + "/groups/0/"
	for _, name := range []string{"log-000002", "state-000007", "incoming-1", "kept-1-divergent", "artifacts"} {
		if err := durable.MkdirAll(mem, group+name+"/below", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := mustOpen(t, mem)
	if err := errors.Join(d.Group(0).Clean(), d.Group(5).Clean(), d.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List(group)
	slices.Sort(names)
	want := []string{"kept-1-divergent", "log-000001", "marker.current.000001.log-000001.state-000001", "state-000001"}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("after Clean: %q, %v, want %q", names, err, want)
	}
}

func TestOpen_NamesTheHolderInMemory(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	d := mustOpen(t, mem)
	_, err := open(mem)
	if e, ok := errors.AsType[*datadir.LockedError](err); !ok || e.PID != os.Getpid() || e.Path != root+"/LOCK" {
		t.Errorf("Open = %v, want a *LockedError with pid %d", err, os.Getpid())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, mem).Close(); err != nil {
		t.Error(err)
	}
}

// hold is a process that has the directory open until its standard input ends.
func hold(dir string) {
	d, err := datadir.Open(datadir.Options{Path: dir, Name: "n1"})
	fmt.Println("open", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = d.Close()
	os.Exit(0)
}

func TestOpen_OnTheRealFileSystem(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "a", "data")
	reopen := func(dir string) error {
		d, err := datadir.Open(datadir.Options{Path: dir, Name: "n1"})
		if err != nil {
			return err
		}
		if id := d.Member().File; id.Inode == 0 {
			t.Errorf("the member file has no identity: %v", id)
		}
		return errors.Join(d.Admit(cluster(), 2, nil), d.SetVote(0, datadir.Vote{Term: d.Member().BootEpoch}), d.Close())
	}
	if err := errors.Join(reopen(dir), reopen(dir)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("Stat = %v, %v, want mode 0700", info, err)
	}

	copied := filepath.Join(base, "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*datadir.CopiedError](reopen(copied)); !ok {
		t.Error("a copied directory was opened")
	}
	moved := filepath.Join(base, "moved")
	if err := errors.Join(os.Rename(dir, moved), reopen(moved)); err != nil {
		t.Errorf("after a move: %v", err)
	}

	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), "DATADIR_TEST_HOLD="+moved)
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open <nil>\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	for range 2 { // asking does not end the lock
		if e, ok := errors.AsType[*datadir.LockedError](reopen(moved)); !ok || e.PID != holder.Process.Pid {
			t.Errorf("Open = %v, want a *LockedError with pid %d", e, holder.Process.Pid)
		}
	}
	if err := errors.Join(in.Close(), holder.Wait(), reopen(moved)); err != nil {
		t.Error(err)
	}
}

// A first start draws its incarnation from Rand, and only then.
func TestOpen_DrawsTheIncarnationOnce(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	drawn := bytes.Repeat([]byte{7}, 16)
	for epoch := uint64(1); epoch < 4; epoch++ {
		d, err := datadir.Open(datadir.Options{Path: root, FS: mem, Name: "n1", Rand: bytes.NewReader(drawn)})
		if err != nil {
			t.Fatal(err)
		}
		m := d.Member()
		if m.Incarnation != ident.Incarnation(bytes.Repeat([]byte{7}, 16)) || m.BootEpoch != epoch || m.ID != 0 || m.Name != "n1" {
			t.Errorf("Member = %+v at boot %d", m, epoch)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		drawn = nil
	}
	for _, o := range []datadir.Options{{Name: "n"}, {Path: root}, {Path: root, Name: strings.Repeat("n", 256)}} {
		if _, err := datadir.Open(o); err == nil {
			t.Errorf("Open(%+v) = nil", o)
		}
	}
}
