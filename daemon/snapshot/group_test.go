package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

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
)

const root = "/var/tidal"

var (
	first    = ident.EntryID{Term: 1, Index: 1}
	testConf = &pb.ConfState{Voters: []uint64{1, 2, 3}}
)

// disk is the data directory of one member, with group 0 open: real log, real state.
type disk struct {
	fs    vfs.FS
	dir   *datadir.Dir
	files *datadir.Group
	log   *wal.Log
	store *state.Store
	apply *apply.Machine
}

func openDir(fs vfs.FS, id ident.MemberID) (*datadir.Dir, error) {
	d, err := datadir.Open(datadir.Options{Path: root, FS: fs, Name: fmt.Sprintf("n%d", id), Rand: rand.NewChaCha8([32]byte{byte(id)})})
	if err != nil {
		return nil, err
	}
	return d, d.Admit(testCluster, id, nil)
}

func walOptions(fs vfs.FS, dir string) wal.Options {
	return wal.Options{FS: fs, Dir: dir, SegmentBytes: 2 << 10, Foreground: true}
}

// birth makes a member whose group 0 has its first generation.
func birth(fs vfs.FS, id ident.MemberID) error {
	d, err := openDir(fs, id)
	if err != nil {
		return err
	}
	roster := membership.Roster{Version: 1, NextID: 4, Members: []membership.Member{
		{ID: 1, Incarnation: ident.Incarnation{1}, Name: "n1", GRPCAddr: "a:1", HTTPAddr: "a:2", Role: membership.RoleVoter},
	}}
	err = d.SetVote(0, datadir.Vote{Term: 1})
	if err == nil {
		_, err = d.Group(0).Birth(func(logDir, stateDir string) error {
			err := state.Create(state.Options{FS: fs, Dir: stateDir}, state.Position{Applied: first, Conf: testConf}, func(b *state.Batch) error {
				return apply.Birth(b, roster)
			})
			return errors.Join(err, wal.Create(walOptions(fs, logDir), first, nil))
		})
	}
	if err == nil {
		err = d.AddGroup(0)
	}
	return errors.Join(err, d.Close())
}

// open opens the directory and group 0 as a boot does: what is not current goes once all has opened.
func openDisk(fs vfs.FS, id ident.MemberID) (_ *disk, err error) {
	m := &disk{fs: fs}
	if m.dir, err = openDir(fs, id); err != nil {
		return nil, err
	}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *disk) open() error {
	m.files = m.dir.Group(0)
	gen, ok, err := m.files.Current()
	if err != nil || !ok {
		return fmt.Errorf("no generation: %w", err)
	}
	var rec wal.Recovered
	if m.log, rec, err = wal.Open(walOptions(m.fs, m.files.LogDir(gen))); err != nil {
		return err
	}
	if m.store, err = state.Open(state.Options{FS: m.fs, Dir: m.files.StateDir(gen)}); err != nil {
		return err
	}
	if m.apply, err = apply.New(m.store); err != nil {
		return err
	}
	// What a replica asks of its parts, in short.
	at := m.store.Position().Applied
	term, err := m.log.Term(at.Index)
	if vote := m.dir.Vote(0); err != nil || term != at.Term || vote.Term < rec.HardState.GetTerm() {
		return fmt.Errorf("state at %s, the log has term %d there (%v) and is of term %d, votes of term %d", at, term, err, rec.HardState.GetTerm(), vote.Term)
	}
	return m.files.Clean()
}

func (m *disk) closeGroup() error {
	var errs []error
	if m.store != nil {
		errs = append(errs, m.store.Close())
	}
	if m.log != nil {
		errs = append(errs, m.log.Close())
	}
	m.store, m.log = nil, nil
	return errors.Join(errs...)
}

func (m *disk) close() error { return errors.Join(m.closeGroup(), m.dir.Close()) }

// entry is one signal on one of a few items; the same for the same index and term.
func entry(term, index uint64) *pb.Entry {
	var w command.Write
	item := fmt.Sprintf("item-%d", index%7)
	if index < 9 {
		w.Records = append(w.Records, command.Item{ID: item, Attrs: []byte(`{}`)})
	} else {
		w.Records = append(w.Records, command.Signal{Item: item, Type: "view", Milli: 1000, User: fmt.Sprintf("%d/%d", term, index)})
	}
	stamp := ident.MakeStamp(int64(1_700_000_000_000 + index*1000))
	return &pb.Entry{Term: proto.Uint64(term), Index: proto.Uint64(index), Data: command.EncodeWrites(stamp, [][]byte{command.EncodeWrite(w)})}
}

// append puts entries up to index into the log, committed up to commit.
func (m *disk) append(term, to, commit uint64) error {
	for i := m.log.LastIndex() + 1; i <= to; i++ {
		f := wal.Frame{Entries: []*pb.Entry{entry(term, i)}, HardState: &pb.HardState{Term: proto.Uint64(term), Vote: proto.Uint64(1), Commit: proto.Uint64(min(i, commit))}}
		if err := m.log.Append([]wal.Frame{f}, true); err != nil {
			return err
		}
	}
	return nil
}

// applyTo applies what the log has, up to index.
func (m *disk) applyTo(index uint64) error {
	at := m.store.Position().Applied.Index
	for at < index {
		ents, err := m.log.Entries(at+1, index+1, 4<<10)
		if err != nil {
			return err
		}
		if err := m.apply.Apply([]*apply.Run{{Entries: ents}}); err != nil {
			return err
		}
		at += uint64(len(ents))
	}
	return nil
}

// content is everything in state but the position, in order.
func content(s *state.Store) (string, error) {
	v := s.NewView()
	it := v.Iter([]byte{1}, nil)
	var all []byte
	for ok := it.First(); ok; ok = it.Next() {
		all = fmt.Appendf(all, "%x=%x\n", it.Key(), it.Value())
	}
	return string(all), errors.Join(it.Close(), v.Close())
}

// member makes a member with entries 2 to index, all applied.
func member(t *testing.T, fs vfs.FS, id ident.MemberID, index uint64) *disk {
	t.Helper()
	err := birth(fs, id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openDisk(fs, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.dir.SetVote(0, datadir.Vote{Term: 2, Vote: 1}), m.append(2, index, index), m.applyTo(index)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.close() }) // a test may have closed it
	return m
}

// stager stages for m.
func stager(t *testing.T, m *disk, change ...func(*StagerOptions)) *Stager {
	t.Helper()
	o := StagerOptions{FS: m.fs, Dir: m.files.ArtifactsDir(), Cluster: testCluster, Self: 1, Store: m.store}
	for _, c := range change {
		c(&o)
	}
	s, err := NewStager(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// local is a Source without a network.
type local struct {
	s     *Stager
	first uint64                       // of the source's log
	term  uint64                       // of the source
	spoil func(n int, c *Chunk) error  // of the n-th chunk of all streams; nil: none
	sent  *int                         // chunks
	open  func(Request) (Header, bool) // answers instead, if it returns true
}

func (l local) Open(ctx context.Context, r Request) (Header, Stream, error) {
	if l.open != nil {
		if h, ok := l.open(r); ok {
			return h, &queue{}, nil
		}
	}
	if !r.Always && l.first <= r.From {
		return Header{Term: l.term}, nil, nil
	}
	lease, err := l.s.Lend(2, r.Least)
	if err != nil {
		return Header{}, nil, err
	}
	h := Header{Needed: true, Term: l.term, Manifest: lease.Manifest()}
	if r.Have == lease.ID() {
		h.From = r.Resume
	}
	q := &queue{}
	q.err = lease.Send(ctx, h.From, func(c Chunk) error {
		c.Term = l.term
		*l.sent++
		if l.spoil != nil {
			if err := l.spoil(*l.sent, &c); err != nil {
				return err
			}
		}
		c.Data = bytes.Clone(c.Data)
		q.chunks = append(q.chunks, c)
		return nil
	})
	lease.Close(q.err == nil)
	return h, q, nil
}

type queue struct {
	chunks []Chunk
	err    error
}

func (q *queue) Next() (Chunk, error) {
	if len(q.chunks) == 0 {
		if q.err != nil {
			return Chunk{}, q.err
		}
		return Chunk{}, io.EOF
	}
	c := q.chunks[0]
	q.chunks = q.chunks[1:]
	return c, nil
}

func (q *queue) Close() {}

func fetcher(m *disk) *Fetcher {
	return NewFetcher(FetcherOptions{FS: m.fs, Dir: m.files.IncomingDir, Cluster: testCluster})
}

// fetch brings what src has to m.
func fetch(t *testing.T, m *disk, src Source) *Artifact {
	t.Helper()
	a, err := fetcher(m).Fetch(t.Context(), src, Request{From: 2, Always: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// install closes m's group, installs a as a member does, and opens it again.
func (m *disk) install(a *Artifact) error {
	keep, err := Contains(m.log, a.Manifest.Position.Applied)
	if err := errors.Join(err, m.closeGroup()); err != nil {
		return err
	}
	i := Install{Files: m.files, Votes: m.dir, Artifact: a}
	if !keep {
		o := walOptions(m.fs, "")
		i.NewLog = &o
	}
	if _, err := i.Run(); err != nil {
		return err
	}
	if err := m.open(); err != nil {
		return err
	}
	return a.Verify(m.store.Position())
}

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }
