package audit_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/audit"
)

var (
	names = []string{"a", "b", "c"}
	birth = ident.EntryID{Term: 1, Index: 1}
)

const segmentBytes = 4 << 10

// disks are the directories of a stopped cluster of three, made by the packages that make real ones.
type disks struct {
	t       *testing.T
	fs      *vfs.MemFS
	genesis membership.Genesis
}

func newDisks(t *testing.T) *disks {
	d := &disks{t: t, fs: vfs.NewMem()}
	for i, name := range names {
		d.genesis.Members = append(d.genesis.Members, membership.Member{
			Name: name, ID: ident.MemberID(i + 1), Incarnation: ident.Incarnation{byte(i + 1)},
			GRPCAddr: name + ":1", HTTPAddr: name + ":2", Role: membership.RoleVoter, Capabilities: ident.Supported,
		})
	}
	for i := range names {
		d.bear(i)
	}
	return d
}

func (d *disks) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func dirOf(i int) string { return "/" + names[i] }

func (d *disks) open(i int) *datadir.Dir {
	dir, err := datadir.Open(datadir.Options{Path: dirOf(i), Name: names[i], FS: d.fs})
	d.must(err)
	return dir
}

func (d *disks) bear(i int) {
	dir := d.open(i)
	d.must(dir.Admit(d.genesis.ClusterID(), ident.MemberID(i+1), d.genesis.Encode()))
	d.must(dir.SetVote(0, datadir.Vote{Term: 1}))
	_, err := dir.Group(0).Birth(func(logDir, stateDir string) error {
		at := state.Position{Applied: birth, Conf: d.genesis.ConfState()}
		d.must(state.Create(state.Options{FS: d.fs, Dir: stateDir}, at, func(b *state.Batch) error { return apply.Birth(b, d.genesis.Roster()) }))
		return wal.Create(wal.Options{FS: d.fs, Dir: logDir, SegmentBytes: segmentBytes}, birth, nil)
	})
	d.must(err)
	d.must(dir.AddGroup(0))
	d.must(dir.Close())
}

func logDir(i int) string   { return path.Join(dirOf(i), "groups/0/log-000001") }
func stateDir(i int) string { return path.Join(dirOf(i), "groups/0/state-000001") }

// write appends entries to a member's log under a vote, says that commit is committed, and applies up
// to there.
func (d *disks) write(i int, vote datadir.Vote, commit, applied uint64, entries ...*pb.Entry) {
	d.t.Helper()
	dir := d.open(i)
	d.must(dir.SetVote(0, vote))
	d.must(dir.Close())
	log, _, err := wal.Open(wal.Options{FS: d.fs, Dir: logDir(i), SegmentBytes: segmentBytes, Foreground: true})
	d.must(err)
	hs := &pb.HardState{Term: &vote.Term, Vote: &vote.Vote, Commit: &commit}
	d.must(log.Append([]wal.Frame{{HardState: hs, Entries: entries}}, true))
	store, machine := d.state(i)
	if from := store.Position().Applied.Index; from < applied {
		ents, err := log.Entries(from+1, applied+1, 1<<30)
		d.must(err)
		d.must(machine.Apply([]*apply.Run{{Entries: ents}}))
	}
	d.must(store.Close())
	d.must(log.Close())
}

func (d *disks) state(i int) (*state.Store, *apply.Machine) {
	store, err := state.Open(state.Options{FS: d.fs, Dir: stateDir(i)})
	d.must(err)
	machine, err := apply.New(store)
	d.must(err)
	return store, machine
}

func (d *disks) audit(claims audit.Claims) *audit.Report {
	d.t.Helper()
	dirs := make([]string, len(names))
	for i := range names {
		dirs[i] = dirOf(i)
	}
	r, err := audit.Run(d.fs, dirs, claims)
	d.must(err)
	return r
}

func entry(term, index uint64, payload []byte) *pb.Entry {
	return &pb.Entry{Term: proto.Uint64(term), Index: proto.Uint64(index), Data: payload}
}

// signals is an entry in which each of users signals once.
func signals(term, index uint64, users ...string) *pb.Entry {
	var writes [][]byte
	for _, u := range users {
		writes = append(writes, command.EncodeSignal(command.Signal{Collection: "default", Item: "film", Type: "view", User: u, Milli: 1000}))
	}
	return entry(term, index, command.EncodeWrites(ident.MakeStamp(int64(1000+index)), writes))
}

func ids(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("w%02d", i))
	}
	return all
}

// history is what a sound cluster did: a leads in term 2, b takes over in term 3, and c still has an
// entry of a that was never committed. The states stand at different indexes.
func history(t *testing.T) *disks {
	d := newDisks(t)
	film := entry(2, 3, command.EncodeWrites(ident.MakeStamp(1000), [][]byte{command.EncodeItem(command.Item{Collection: "default", ID: "film", Attrs: []byte("{}")})}))
	first := []*pb.Entry{entry(2, 2, nil), film, signals(2, 4, ids(0, 3)...)}
	second := []*pb.Entry{entry(3, 5, nil), signals(3, 6, ids(3, 6)...), signals(3, 7, ids(6, 9)...)}
	byA, byB := datadir.Vote{Term: 2, Vote: 1}, datadir.Vote{Term: 3, Vote: 2}
	for i := range names {
		d.write(i, byA, 3, 2, first...)
	}
	d.write(2, byA, 3, 3, signals(2, 5, "lost")) // overwritten below
	d.write(0, byB, 7, 7, second...)
	d.write(1, byB, 7, 6, second...)
	d.write(2, datadir.Vote{Term: 3}, 5, 4, second...)
	return d
}

func TestRun_FindsNothingInASoundCluster(t *testing.T) {
	t.Parallel()
	r := history(t).audit(audit.Claims{Acked: ids(0, 8), Unknown: []string{"w08", "lost"}, Refused: []string{"never"}})
	if len(r.Findings) > 0 || r.Entries != 6 || r.Rebuilt != 3 || r.Terms != 2 {
		t.Errorf("audit: %s", r)
	}
}

// delivery is an entry that brings operations of an outbox, a signal of each of users, from the first on.
func delivery(term, index uint64, users ...string) *pb.Entry {
	o := command.Outbox{Origin: ident.Incarnation{9}, Owner: ident.Incarnation{3}, First: 1}
	for _, u := range users {
		signal := command.Signal{Collection: "default", Item: "film", Type: "view", User: u, Milli: 1000}
		o.Ops = append(o.Ops, command.Op{Stamp: ident.MakeStamp(1000), Write: command.EncodeSignal(signal)})
	}
	write := command.EncodeWrite(command.Write{Records: []command.Record{o}})
	return entry(term, index, command.EncodeWrites(ident.MakeStamp(int64(1000+index)), [][]byte{write}))
}

// What outboxes deliver is counted, and an operation that the log holds twice once.
func TestRun_CountsDeliveries(t *testing.T) {
	t.Parallel()
	deliver := func() *disks {
		d := history(t)
		byB := datadir.Vote{Term: 3, Vote: 2}
		for i := range names {
			d.write(i, byB, 9, 9-uint64(i), delivery(3, 8, "local1"), delivery(3, 9, "local1", "local2"))
		}
		return d
	}
	if r := deliver().audit(audit.Claims{Acked: append(ids(0, 9), "local1", "local2")}); len(r.Findings) > 0 || r.Rebuilt != 3 {
		t.Errorf("audit: %s", r)
	}
	want := "I3: write local3 was acknowledged and is in the log 0 times"
	if r := deliver().audit(audit.Claims{Acked: append(ids(0, 9), "local3")}); !strings.Contains(r.String(), want) {
		t.Errorf("audit: %s, want %q", r, want)
	}
}

// Every kind of lie is found, and called by the name of the invariant that it breaks.
func TestRun_FindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	sound := audit.Claims{Acked: ids(0, 9)}
	byB := datadir.Vote{Term: 3, Vote: 2}
	for _, c := range []struct {
		name      string
		doctor    func(*disks)
		claims    audit.Claims
		invariant string
	}{
		{"a lost acknowledgement", nil, audit.Claims{Acked: append(ids(0, 9), "lost")}, "I3: write lost was acknowledged and is in the log 0 times"},
		{"a refused write that happened", nil, audit.Claims{Acked: ids(0, 8), Refused: []string{"w08"}}, "I3: write w08 was refused"},
		{"a doubled write", func(d *disks) {
			for i := range names {
				d.write(i, byB, 8, 7, signals(3, 8, "w03"))
			}
		}, sound, "I3: write w03 was acknowledged and is in the log 2 times"},
		{"a doubled write of unknown outcome", func(d *disks) {
			for i := range names {
				d.write(i, byB, 8, 7, signals(3, 8, "w03"))
			}
		}, audit.Claims{Unknown: ids(0, 9)}, "I3: write w03 was of unknown outcome"},
		{"two entries of one name", func(d *disks) {
			d.write(0, byB, 7, 7, signals(3, 8, "x"))
			d.write(1, byB, 7, 6, signals(3, 8, "y"))
		}, sound, "I2: b: entry 3/8 is not the one"},
		{"two leaders in one term", func(d *disks) {
			d.write(0, datadir.Vote{Term: 4, Vote: 1}, 7, 7, entry(4, 8, nil))
			d.write(1, datadir.Vote{Term: 4, Vote: 2}, 7, 6, signals(3, 8, "x"), entry(4, 9, nil))
		}, sound, "I1: b: term 4 begins at index 9, with a at index 8"},
		{"logs that disagree before they agree", func(d *disks) {
			d.write(0, datadir.Vote{Term: 5}, 7, 7, entry(4, 8, nil), entry(5, 9, nil))
			d.write(1, datadir.Vote{Term: 5}, 7, 6, entry(3, 8, nil), entry(5, 9, nil))
		}, sound, "I2: b: agrees with a on index 9 and has term 3 at index 8"},
		{"two committed entries at one index", func(d *disks) {
			d.write(0, datadir.Vote{Term: 5}, 8, 7, entry(4, 8, nil))
			d.write(1, datadir.Vote{Term: 5}, 8, 6, entry(5, 8, nil))
		}, sound, "index 8 is committed as term"},
		{"votes put back from an old copy", func(d *disks) {
			old := d.copyOf(path.Join(dirOf(1), "votes"))
			d.write(1, datadir.Vote{Term: 6, Vote: 1}, 7, 6)
			d.write(1, datadir.Vote{Term: 6, Vote: 1}, 7, 6, entry(6, 8, nil))
			d.replace(path.Join(dirOf(1), "votes"), old)
		}, sound, "I1: b: its votes are of term 3, its log is of term 6"},
		{"a state ahead of its log", func(d *disks) {
			store, machine := d.state(0)
			d.must(machine.Apply([]*apply.Run{{Entries: []*pb.Entry{signals(3, 8, "x")}}}))
			d.must(store.Close())
		}, sound, "I4: a: state is at"},
		{"an altered state", func(d *disks) {
			d.alter(1, func(b *state.Batch) { b.Set([]byte("\x05forged"), []byte("x")) })
		}, sound, "I7: b: state at index 6"},
		{"a state that lost a key", func(d *disks) {
			d.alter(2, func(b *state.Batch) { b.Delete([]byte("\x02default")) })
		}, sound, `I7: c: state at index 4 is not what the log gives: key "\x02default" is missing`},
		{"a damaged log", func(d *disks) {
			names, err := d.fs.List(logDir(0))
			d.must(err)
			i := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, ".wal") })
			name := path.Join(logDir(0), names[i])
			b := d.copyOf(name)
			b[100] ^= 1
			d.replace(name, b)
		}, sound, "disk: /a: log corrupt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := history(t)
			if c.doctor != nil {
				c.doctor(d)
			}
			r := d.audit(c.claims)
			if !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return strings.Contains(f.String(), c.invariant) }) {
				t.Errorf("want a finding %q in %s", c.invariant, r)
			}
		})
	}
}

// alter changes a state behind the back of its log.
func (d *disks) alter(i int, change func(*state.Batch)) {
	store, _ := d.state(i)
	b := store.NewBatch()
	change(b)
	d.must(b.Commit(store.Position()))
	d.must(b.Close())
	d.must(store.Close())
}

func (d *disks) copyOf(name string) []byte {
	f, err := d.fs.Open(name)
	d.must(err)
	defer f.Close()
	info, err := f.Stat()
	d.must(err)
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	d.must(err)
	return b
}

func (d *disks) replace(name string, b []byte) {
	f, err := d.fs.Create(name, vfs.WriteCategoryUnspecified)
	d.must(err)
	_, err = f.Write(b)
	d.must(err)
	d.must(f.Close())
}
