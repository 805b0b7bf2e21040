package snapshot

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

// pair is a member that stages and one that fetches, with a source between them.
func pair(t *testing.T) (follower *disk, src *local) {
	leader, follower := member(t, vfs.NewMem(), 1, 20), member(t, vfs.NewMem(), 2, 5)
	return follower, &local{s: stager(t, leader), first: 10, term: 2, sent: new(int)}
}

func TestFetch_TakesOnlyWhatIsNeeded(t *testing.T) {
	m, src := pair(t)
	f := fetcher(m)
	for from, needed := range map[uint64]bool{9: true, 10: false, 21: false} {
		if got, err := Needed(t.Context(), src, Request{From: from}); got != needed || err != nil {
			t.Errorf("from %d: needed %t, %v, want %t", from, got, err, needed)
		}
	}
	if a, err := f.Fetch(t.Context(), src, Request{From: 10}); a != nil || err != nil {
		t.Errorf("Fetch = %v, %v, want nothing: the log has it", a, err)
	}
	if a, err := f.Fetch(t.Context(), src, Request{From: 10, Always: true}); a == nil || err != nil {
		t.Errorf("Fetch of a latched reseed = %v, %v, want an artifact all the same", a, err)
	}
	arrived, total := f.Progress()
	if arrived != total || total == 0 {
		t.Errorf("%d of %d bytes", arrived, total)
	}
}

// A transfer that breaks at any chunk goes on from the last one that was sound, as long as the
// artifact is the same, and begins again when it is not.
func TestFetch_Resumes(t *testing.T) {
	m, src := pair(t)
	whole, err := fetcher(m).Fetch(t.Context(), src, Request{})
	if err != nil {
		t.Fatal(err)
	}
	chunks := *src.sent
	if chunks < 3 {
		t.Fatalf("an artifact of %d chunks", chunks)
	}
	for at := 1; at <= chunks; at++ {
		*src.sent = 0
		src.spoil = func(n int, _ *Chunk) error {
			if n == at {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		f := fetcher(m)
		if _, err := f.Fetch(t.Context(), src, Request{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("broken at chunk %d: %v", at, err)
		}
		src.spoil = nil
		a, err := f.Fetch(t.Context(), src, Request{})
		if err != nil || a.ID != whole.ID || *src.sent != chunks+1 {
			t.Fatalf("resumed at chunk %d: %v, %v, %d chunks were sent, want %d", at, a, err, *src.sent, chunks+1)
		}
	}

	f := fetcher(m)
	*src.sent = 0
	src.spoil = func(n int, _ *Chunk) error {
		if n == chunks {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	_, _ = f.Fetch(t.Context(), src, Request{})
	src.spoil = nil
	other := local{s: stager(t, member(t, vfs.NewMem(), 3, 22)), first: 10, term: 2, sent: new(int)}
	if a, err := f.Fetch(t.Context(), other, Request{}); err != nil {
		t.Error(err)
	} else if a.ID == whole.ID || a.Manifest.Position.Applied.Index != 22 {
		t.Errorf("from another source: %+v, %v, want its artifact", a, err)
	}
	if _, err := m.fs.Stat(m.files.IncomingDir(whole.ID.String())); err == nil {
		t.Error("what arrived of the first artifact is still there")
	}
}

// Whatever is wrong with a chunk, nothing of it stays, and the next attempt mends it.
func TestFetch_RefusesBadChunks(t *testing.T) {
	for name, spoil := range map[string]func(*Chunk){
		"a flipped bit":         func(c *Chunk) { c.Data[len(c.Data)/2] ^= 1 },
		"a flipped bit, summed": func(c *Chunk) { c.Data[0] ^= 1; c.Sum = durable.Checksum(c.Data) },
		"too short":             func(c *Chunk) { c.Data = c.Data[:len(c.Data)-1]; c.Sum = durable.Checksum(c.Data) },
		"too long":              func(c *Chunk) { c.Data = append(c.Data, 0); c.Sum = durable.Checksum(c.Data) },
		"empty":                 func(c *Chunk) { c.Data, c.Sum = nil, durable.Checksum(nil) },
		"of another file":       func(c *Chunk) { c.File++ },
		"of another place":      func(c *Chunk) { c.Offset += 512 << 10 },
		"of no place":           func(c *Chunk) { c.Offset = math.MinInt64 },
		"of another term":       func(c *Chunk) { c.Term++ },
	} {
		t.Run(name, func(t *testing.T) {
			m, src := pair(t)
			src.spoil = func(n int, c *Chunk) error {
				if n == 2 {
					spoil(c)
				}
				return nil
			}
			f := fetcher(m)
			if _, err := f.Fetch(t.Context(), src, Request{}); !errors.As(err, new(*TransferError)) {
				t.Errorf("Fetch = %v, want a *TransferError", err)
			}
			src.spoil = nil
			a, err := f.Fetch(t.Context(), src, Request{})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.install(a); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFetch_RefusesOtherArtifacts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Header, *Manifest)
		least  uint64
		as     any
	}{
		"of another cluster":     {change: func(_ *Header, m *Manifest) { m.Cluster = ident.ClusterID{9} }, as: new(*ManifestError)},
		"of another group":       {change: func(_ *Header, m *Manifest) { m.Group = 7 }, as: new(*ManifestError)},
		"of a newer format":      {change: func(_ *Header, m *Manifest) { m.StateFormat++ }, as: new(*FormatError)},
		"of a feature unknown":   {change: func(_ *Header, m *Manifest) { m.Features = 1 << 50 }, as: new(*FormatError)},
		"before the barrier":     {change: func(*Header, *Manifest) {}, least: 1235, as: new(*BehindError)},
		"from the middle":        {change: func(h *Header, _ *Manifest) { h.From.File = 1 }, as: new(*ManifestError)},
		"larger than the disk":   {change: func(_ *Header, m *Manifest) { m.Files[0].Bytes = maxFileBytes }, as: new(*NoRoomError)},
		"whose manifest is none": {change: func(h *Header, m *Manifest) { m.Files = nil }, as: new(*ManifestError)},
	} {
		t.Run(name, func(t *testing.T) {
			m, src := pair(t)
			src.open = func(Request) (Header, bool) {
				h, manifest := Header{Needed: true, Term: 2}, sample()
				manifest.Group = 0
				c.change(&h, manifest)
				h.Manifest = manifest.Encode()
				return h, true
			}
			f := NewFetcher(FetcherOptions{FS: small{m.fs}, Dir: m.files.IncomingDir, Cluster: testCluster})
			if _, err := f.Fetch(t.Context(), src, Request{Least: c.least}); !errors.As(err, c.as) {
				t.Errorf("Fetch = %v, want a %T", err, c.as)
			}
			if names, err := m.fs.List(m.fs.PathDir(m.files.IncomingDir("x"))); err != nil || len(names) > 4 {
				t.Errorf("it left %q, %v", names, err)
			}
		})
	}
}

// small is a disk with 1 GiB of room.
type small struct{ vfs.FS }

func (small) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{TotalBytes: 2 << 30, AvailBytes: 1 << 30}, nil
}

// full is a disk that fills up.
type full struct {
	vfs.FS
	err error
}

func (f full) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, fmt.Errorf("create %s: %w", name, f.err)
}

func TestFetch_DiscardsWhenTheDiskIsFull(t *testing.T) {
	m, src := pair(t)
	cause := errors.New("no space left on device")
	f := NewFetcher(FetcherOptions{FS: full{m.fs, cause}, Dir: m.files.IncomingDir, Cluster: testCluster})
	if _, err := f.Fetch(t.Context(), src, Request{}); !errors.Is(err, cause) {
		t.Errorf("Fetch = %v, want %v", err, cause)
	}
	if err := f.Discard(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.fs.Stat(m.files.IncomingDir("x")); err == nil {
		t.Error("something of it is left")
	}
	if arrived, total := f.Progress(); arrived != 0 || total != 0 {
		t.Errorf("progress is %d of %d", arrived, total)
	}
}

// roomy is a disk that says in turn that so much is free; the last stays so.
type roomy struct {
	vfs.FS
	free *[]uint64
}

func (d roomy) GetDiskUsage(string) (vfs.DiskUsage, error) {
	now := (*d.free)[0]
	if len(*d.free) > 1 {
		*d.free = (*d.free)[1:]
	}
	return vfs.DiskUsage{TotalBytes: 1 << 40, AvailBytes: now}, nil
}

// An artifact leaves the room that its member needs beside it: it is not begun without, and ended where others
// have taken that room while it arrived.
func TestFetch_LeavesTheReserve(t *testing.T) {
	const reserve = 64 << 20
	m, src := pair(t)
	a, err := fetcher(m).Fetch(t.Context(), src, Request{})
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(a.Manifest.Bytes())
	for _, c := range []struct {
		name    string
		free    []uint64 // before it begins, and before each of its files
		refused bool
		begun   bool
	}{
		{"just enough", []uint64{size + reserve}, false, true},
		{"a byte too little", []uint64{size + reserve - 1, size + reserve}, true, false},
		{"others take it meanwhile", []uint64{size + reserve, size + reserve, reserve}, true, true},
	} {
		f := NewFetcher(FetcherOptions{FS: roomy{m.fs, &c.free}, Dir: m.files.IncomingDir, Cluster: testCluster,
			Reserve: func() uint64 { return reserve }})
		_, err := f.Fetch(t.Context(), src, Request{})
		arrived, _ := f.Progress()
		if _, refused := errors.AsType[*NoRoomError](err); refused != c.refused || err != nil && !refused || arrived > 0 != c.begun {
			t.Errorf("%s: %d of %d bytes arrived, %v", c.name, arrived, size, err)
		}
		if err := f.Discard(); err != nil {
			t.Error(err)
		}
	}
}

// What is not the state that its manifest promises goes, whole, and the next attempt begins anew.
func TestFetch_RefusesAStateThatIsNotTheOnePromised(t *testing.T) {
	m, src := pair(t)
	rotten, proofs := errors.New("other pairs"), 0
	f := NewFetcher(FetcherOptions{FS: m.fs, Dir: m.files.IncomingDir, Cluster: testCluster, Prove: func(dir string, got *Manifest) error {
		at, err := state.Position{}, state.Inspect(m.fs, dir, func(v *state.View) error { return got.Promises(v.Position()) })
		if proofs++; proofs == 1 {
			return rotten
		}
		if got.Promises(at) == nil {
			t.Error("a manifest promises nothing")
		}
		return err
	}})
	if _, err := f.Fetch(t.Context(), src, Request{}); !errors.Is(err, rotten) || !errors.As(err, new(*ProofError)) {
		t.Errorf("Fetch = %v, want a *ProofError", err)
	}
	if arrived, total := f.Progress(); arrived != 0 || total != 0 {
		t.Errorf("%d of %d bytes are left", arrived, total)
	}
	a, err := f.Fetch(t.Context(), src, Request{})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.Fetch(t.Context(), src, Request{}); err != nil || again.ID != a.ID || proofs != 2 {
		t.Errorf("asked again: %v, %v, %d proofs", again, err, proofs)
	}
	if err := m.install(a); err != nil {
		t.Error(err)
	}
}

// tired is a disk whose files fail one call, the at-th, of a kind.
type tired struct {
	vfs.FS
	syncs, pushes *atomic.Int64 // calls until one fails
}

var errTired = errors.New("input/output error")

func (t tired) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := t.FS.Create(name, c)
	return &tiredFile{f, t}, err
}

type tiredFile struct {
	vfs.File
	t tired
}

func (f *tiredFile) Sync() error {
	if f.t.syncs.Add(-1) == 0 {
		return errTired
	}
	return f.File.Sync()
}

func (f *tiredFile) SyncTo(n int64) (bool, error) {
	if f.t.pushes.Add(-1) == 0 {
		return false, errTired
	}
	return f.File.SyncTo(n)
}

// A file that does not get to the disk, which shows when others have arrived already, voids the artifact:
// the next attempt brings all of it.
func TestFetch_BeginsAnewWhenTheDiskFailsBehind(t *testing.T) {
	for _, foreground := range []bool{false, true} {
		for at := int64(1); ; at++ {
			m, src := pair(t)
			disk := tired{m.fs, new(atomic.Int64), new(atomic.Int64)}
			disk.syncs.Store(at)
			f := NewFetcher(FetcherOptions{FS: disk, Dir: m.files.IncomingDir, Cluster: testCluster, Foreground: foreground})
			_, err := f.Fetch(t.Context(), src, Request{})
			if err == nil {
				if at == 1 {
					t.Error("nothing was synced")
				}
				break
			}
			if !errors.Is(err, errTired) {
				t.Fatalf("sync %d failed: Fetch = %v", at, err)
			}
			a, err := f.Fetch(t.Context(), src, Request{})
			if err != nil {
				t.Fatalf("after sync %d failed: %v", at, err)
			}
			if err := m.install(a); err != nil {
				t.Fatalf("after sync %d failed: %v", at, err)
			}
		}
	}
}

// The disk is asked to take a large file while it arrives, and holds up whoever is too far ahead of it.
func TestWriteback_KeepsTheDiskBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f, w := &landing{File: gated{gate: gate}}, newWriteback(false)
		var ahead atomic.Int64
		go func() {
			for ahead.Load() < 2*maxBehind {
				if err := w.wrote(f, pushBytes); err != nil {
					t.Error(err)
				}
				ahead.Add(pushBytes)
			}
		}()
		synctest.Wait()
		if n := ahead.Load(); n != maxBehind {
			t.Errorf("%d bytes were written to a disk that has taken none, want %d", n, int64(maxBehind))
		}
		close(gate)
		synctest.Wait()
		if err := errors.Join(w.end(f), w.wait()); err != nil || ahead.Load() != 2*maxBehind || f.pushed != 2*maxBehind {
			t.Errorf("%d bytes written, %d pushed, %v", ahead.Load(), f.pushed, err)
		}
	})
}

// gated is a file on a disk that takes nothing before gate is closed.
type gated struct {
	vfs.File
	gate chan struct{}
}

func (g gated) SyncTo(int64) (bool, error) {
	<-g.gate
	return false, nil
}
func (g gated) Sync() error  { return nil }
func (g gated) Close() error { return nil }
