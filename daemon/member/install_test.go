package member

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/snapshot"
)

// onCreate is a file system that says which file is made next.
type onCreate struct {
	vfs.FS
	does func(path string)
}

func (fs *onCreate) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	fs.does(path)
	return fs.FS.Create(path, c)
}

// sourceOf is a member as others ask it for its artifact.
type sourceOf struct{ m *Member }

func (s sourceOf) Open(ctx context.Context, r snapshot.Request) (snapshot.Header, snapshot.Stream, error) {
	var out labTransfer
	err := s.m.FetchSnapshot(ctx, peer.SnapshotRequest{Hello: s.m.SelfHello(), Group: r.Group, Always: true}, &out)
	next := func() (peer.SnapshotChunk, error) {
		if len(out.chunks) == 0 {
			return peer.SnapshotChunk{}, io.EOF
		}
		x := out.chunks[0]
		out.chunks = out.chunks[1:]
		return x, nil
	}
	return snapshot.Header{Needed: out.header.Needed, Term: out.header.Term, Manifest: out.header.Manifest}, chunks{peer.NewSnapshotStream(next)}, err
}

// A member that is removed while its data is replaced opens nothing any more, and goes on without it.
func TestInstall_OfAMemberThatIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	removal := func(string) {}
	l := &lone{t: t, fs: &onCreate{vfs.NewMem(), func(path string) { removal(path) }}}
	l.start()
	t.Cleanup(l.stop)
	if serves, err := l.Seek(); !serves || err != nil {
		t.Fatal(serves, err)
	}
	l.write("i")
	k := l.current(0).keeper
	a, err := k.startFetch().Fetch(t.Context(), sourceOf{l.Member}, snapshot.Request{Always: true})
	if err != nil {
		t.Fatal(err)
	}
	removal = func(path string) {
		if strings.Contains(path, "/marker.current") {
			l.mu.Lock()
			l.takeGroupsLocked()
			l.mu.Unlock()
		}
	}
	if err := k.install(a, source{m: l.Member, member: 1}); !errors.Is(err, ErrRemoved) {
		t.Errorf("install: %v, want %v", err, ErrRemoved)
	}
}

// What an earlier process fetched and did not install goes at the next start, also where the replica does not
// open then: it is what has to be fetched that needs the room.
func TestOpenGroup_RemovesWhatWasNotInstalled(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	k := l.current(0).keeper
	left := k.files.IncomingDir("0123")
	if err := l.fs.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	gen, _, err := k.files.Current()
	if err != nil {
		t.Fatal(err)
	}
	l.stop()
	head := l.fs.PathJoin(k.files.LogDir(gen), "head")
	f, err := l.fs.Create(head, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("nothing that a log begins with")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l.start()
	if c := l.quarantined(); c != CauseLogCorrupt {
		t.Fatalf("quarantine %q, want %q", c, CauseLogCorrupt)
	}
	if _, err := l.fs.Stat(left); err == nil {
		t.Errorf("%s is there still", left)
	}
}
