package outbox

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

var update = flag.Bool("update", false, "rewrite the fixtures")

func view(item string) []byte {
	return command.EncodeWrite(command.Write{Records: []command.Record{command.Signal{Item: item, Type: "view", Milli: 1000}}})
}

// sample is two runs of two chains.
func sample() []command.Outbox {
	stamp := ident.MakeStamp(1_760_000_000_000)
	return []command.Outbox{
		{Origin: ident.Incarnation{1, 15: 2}, Owner: ident.Incarnation{3}, First: 1, Ops: []command.Op{{Stamp: stamp, Write: view("alien")}, {Stamp: stamp + 1, Write: view("heat")}}},
		{Origin: ident.Incarnation{4, 15: 5}, Owner: ident.Incarnation{6}, First: 7, Before: [16]byte{8, 15: 9}, Ops: []command.Op{{Stamp: stamp + 2, Write: view("ran")}}},
	}
}

func encodeFile(runs []command.Outbox) []byte {
	b := appendHeader(nil)
	for _, run := range runs {
		b = appendFrame(b, int64(len(b)), run)
	}
	return b
}

// The formats stay what they are.
func TestFormats_MatchFixtures(t *testing.T) {
	t.Parallel()
	var exchange bytes.Buffer
	if err := WriteSnapshot(&exchange, sample()); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"file-v1.hex": encodeFile(sample()), "exchange-v1.hex": exchange.Bytes()} {
		path := filepath.Join("testdata", name)
		text := hex.EncodeToString(b) + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s is %s, want %s", name, text, want)
		}
	}
	if runs, err := scan("f", encodeFile(sample())); err != nil || !reflect.DeepEqual(runs, decoded(t, sample())) {
		t.Errorf("scan = %+v, %v", runs, err)
	}
	if runs, err := ReadSnapshot(&exchange, 1<<20); err != nil || !reflect.DeepEqual(runs, decoded(t, sample())) {
		t.Errorf("ReadSnapshot = %+v, %v", runs, err)
	}
}

// decoded is runs as they come back from the wire.
func decoded(t *testing.T, runs []command.Outbox) []command.Outbox {
	t.Helper()
	out := make([]command.Outbox, len(runs))
	for i, run := range runs {
		var err error
		if out[i], err = command.DecodeOutbox(encodeRun(run)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Every flipped bit is found: in the last frame it is a torn tail, before it damage.
func TestScan_FlipEveryBit(t *testing.T) {
	t.Parallel()
	sound := encodeFile(sample())
	second := len(encodeFile(sample()[:1]))
	for i := range len(sound) * 8 {
		b := slices.Clone(sound)
		b[i/8] ^= 1 << (i % 8)
		runs, err := scan("f", b)
		_, corrupt := errors.AsType[*CorruptError](err)
		_, version := errors.AsType[*durable.VersionError](err)
		switch at := i / 8; {
		case at < fileHeader:
			if !corrupt && !version || len(runs) > 0 {
				t.Errorf("bit %d: %d runs, %v", i, len(runs), err)
			}
		case at < second:
			if !corrupt || len(runs) != 0 {
				t.Errorf("bit %d: %d runs, %v, want damage", i, len(runs), err)
			}
		default:
			if err != nil || len(runs) != 1 {
				t.Errorf("bit %d: %d runs, %v, want a torn tail", i, len(runs), err)
			}
		}
	}
}

// A file that ends anywhere after its header has what was whole.
func TestScan_CutAnywhere(t *testing.T) {
	t.Parallel()
	sound := encodeFile(sample())
	first, second := len(encodeFile(sample()[:1])), len(sound)
	for n := fileHeader; n <= len(sound); n++ {
		want := 0
		if n >= first {
			want = 1
		}
		if n == second {
			want = 2
		}
		if runs, err := scan("f", sound[:n]); err != nil || len(runs) != want {
			t.Errorf("%d bytes: %d runs, %v, want %d", n, len(runs), err, want)
		}
	}
	for n := range fileHeader {
		if _, err := scan("f", sound[:n]); err == nil {
			t.Errorf("%d bytes: no error", n)
		}
	}
}

func TestReadSnapshot_CutOrTooLarge(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := WriteSnapshot(&b, sample()); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		_, err := ReadSnapshot(bytes.NewReader(b.Bytes()[:n]), 1<<20)
		if _, ok := errors.AsType[*SnapshotError](err); !ok {
			t.Errorf("%d bytes: %v, want a *SnapshotError", n, err)
		}
	}
	if _, err := ReadSnapshot(bytes.NewReader(b.Bytes()), 50); err == nil {
		t.Error("a snapshot above the limit was read")
	}
	cause := errors.New("no more")
	if _, err := ReadSnapshot(io.MultiReader(bytes.NewReader(b.Bytes()[:30]), failing{cause}), 1<<20); !errors.Is(err, cause) {
		t.Errorf("error of the reader: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzScan(f *testing.F) {
	f.Add(encodeFile(sample()))
	f.Add(encodeFile(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		runs, err := scan("f", b)
		if err != nil {
			return
		}
		if got := encodeFile(runs); !bytes.HasPrefix(b, got) {
			t.Errorf("%x was read as %x", b, got)
		}
	})
}

func FuzzReadSnapshot(f *testing.F) {
	var b bytes.Buffer
	if err := WriteSnapshot(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		runs, err := ReadSnapshot(bytes.NewReader(b), 1<<20)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := WriteSnapshot(&again, runs); err != nil || !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%x was read as %x, %v", b, again.Bytes(), err)
		}
	})
}

func open(t testing.TB, fs vfs.FS, change func(*Options)) *Box {
	t.Helper()
	o := Options{FS: fs, Dir: "/data/outbox", Owner: ident.Incarnation{1}}
	if change != nil {
		change(&o)
	}
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func mustTake(t testing.TB, b *Box, write []byte) ID {
	t.Helper()
	id, err := b.Take(write, 0)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Damage in the middle keeps what stands before it, which can be delivered, and ends the taking.
func TestOpen_KeepsADamagedFile(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	b := open(t, fs, nil)
	for _, item := range []string{"a", "b", "c"} {
		mustTake(t, b, view(item))
	}
	path := b.io.file.path
	_ = b.Close()
	content := mustRead(t, fs, path)
	bad := slices.Clone(content)
	bad[bytes.Index(bad, []byte("b"+"\x04view"))]++
	mustWrite(t, fs, path, bad)

	b = open(t, fs, nil)
	s := b.Status()
	if _, ok := errors.AsType[*CorruptError](s.Failed); !ok || s.Pending != 1 {
		t.Fatalf("status %+v", s)
	}
	if _, err := b.Take(view("d"), 0); err == nil {
		t.Error("it takes a write")
	}
	if _, err := b.Merge(sample(), false); err == nil {
		t.Error("it merges")
	}
	if due := b.Due(func(Chain) bool { return true }); len(due) != 1 || len(due[0].Ops) != 1 {
		t.Errorf("due %+v", due)
	}
	b.Tidy()
	if got := mustRead(t, fs, path); !bytes.Equal(got, bad) {
		t.Error("the damaged file was touched")
	}
}

func mustRead(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t *testing.T, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(slices.Clone(b))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	list, err := fs.List("/data/outbox")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// The disk has what is held, and nothing once nothing is.
func TestTidy_GivesRoomBack(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	b := open(t, fs, nil)
	if len(names(t, fs)) != 0 {
		t.Errorf("an outbox that took nothing has %v", names(t, fs))
	}
	big := command.EncodeWrite(command.Write{Records: []command.Record{command.Signal{Item: "a", Type: "view", Milli: 1000, User: string(make([]byte, 200<<10))}}})
	var last ID
	for range 30 {
		last = mustTake(t, b, big)
	}
	deliver := func(seq uint64) {
		b.Delivered(last.Origin, entity.Delivered{Seq: seq, Hash: hashAt(b, last.Origin, seq)})
	}
	deliver(29)
	b.Tidy()
	if f := b.io.file; f.bytes > 300<<10 || len(names(t, fs)) != 1 {
		t.Errorf("one operation of 200 KiB is held in %d bytes, %v", f.bytes, names(t, fs))
	}
	mustTake(t, b, view("b"))
	deliver(31)
	b.Tidy()
	b.Tidy()
	if len(names(t, fs)) != 0 || b.Status().Pending != 0 {
		t.Errorf("nothing is held in %v", names(t, fs))
	}
	mustTake(t, b, view("c"))
	_ = b.Close()
	if b = open(t, fs, nil); b.Status().Pending != 1 {
		t.Errorf("status %+v", b.Status())
	}
}

// hashAt is the hash of an operation that is held.
func hashAt(b *Box, origin ident.Incarnation, seq uint64) [16]byte {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, o := range b.mu.chains[origin].ops {
		if o.seq == seq {
			return o.hash
		}
	}
	return [16]byte{}
}

// What is full refuses before it writes; what was delivered makes room.
func TestTake_IsBounded(t *testing.T) {
	t.Parallel()
	b := open(t, vfs.NewMem(), func(o *Options) { o.MaxBytes = 10 << 10 })
	var last ID
	var err error
	taken := 0
	for ; err == nil; taken++ {
		var id ID
		if id, err = b.Take(view("a"), 0); err == nil {
			last = id
		}
	}
	full, ok := errors.AsType[*FullError](err)
	if !ok || full.Limit != 10<<10 || full.Bytes > full.Limit || full.RetryAfter <= 0 || taken < 20 {
		t.Fatalf("after %d: %v", taken, err)
	}
	if s := b.Status(); s.Bytes > 10<<10 || uint64(s.Pending) != last.Seq {
		t.Errorf("status %+v, the last was %s", s, last)
	}
	b.Delivered(last.Origin, entity.Delivered{Seq: last.Seq, Hash: hashAt(b, last.Origin, last.Seq)})
	if s := b.Status(); s.Bytes != 0 || s.Pending != 0 || s.Oldest != 0 {
		t.Errorf("status %+v", s)
	}
	mustTake(t, b, view("a"))

	large := command.EncodeWrite(command.Write{Records: []command.Record{command.Signal{Item: "a", Type: "view", User: string(make([]byte, MaxOpBytes))}}})
	if _, err := b.Take(large, 0); !isType[*TooLargeError](err) {
		t.Errorf("too large: %v", err)
	}
	item := command.EncodeWrite(command.Write{Records: []command.Record{command.Item{ID: "a", Attrs: []byte("{}")}}})
	if _, err := b.Take(item, 0); !isType[*command.MalformedError](err) {
		t.Errorf("an item: %v", err)
	}
	var many []command.Outbox
	for i := range 100 {
		run := sample()[0]
		run.Origin[1] = byte(i)
		many = append(many, run)
	}
	if m, err := b.Merge(many, false); !isType[*FullError](err) || m.Ops != 0 {
		t.Errorf("merge of too much: %+v, %v", m, err)
	}
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// A key that comes again while its operation waits is that operation; with something else it is refused.
func TestTake_KeysHappenOnce(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	b := open(t, fs, nil)
	key := func(body byte) *command.Key { return &command.Key{Hash: [16]byte{1}, Body: [16]byte{body}} }
	keyed := func(body byte) []byte {
		return command.EncodeWrite(command.Write{Key: key(body), Records: []command.Record{command.Signal{Item: "a", Type: "view", Milli: 1000}}})
	}
	first := mustTake(t, b, keyed(1))
	if again := mustTake(t, b, keyed(1)); again != first {
		t.Errorf("again it is %s, first it was %s", again, first)
	}
	if _, err := b.Take(keyed(2), 0); !isType[*KeyMismatchError](err) {
		t.Errorf("with something else: %v", err)
	}
	record := command.EncodeWrite(command.Write{Records: []command.Record{command.Keyed{Key: command.Key{Hash: [16]byte{2}}, Record: command.Signal{Item: "a", Type: "view", Milli: 1000}}}})
	if x, y := mustTake(t, b, record), mustTake(t, b, record); x != y || x == first {
		t.Errorf("a keyed record is %s, then %s", x, y)
	}
	_ = b.Close()
	b = open(t, fs, nil)
	if again := mustTake(t, b, keyed(1)); again != first || b.Status().Pending != 2 {
		t.Errorf("after a restart it is %s, first it was %s; %+v", again, first, b.Status())
	}
	b.Delivered(first.Origin, entity.Delivered{Seq: 2, Hash: hashAt(b, first.Origin, 2)})
	if later := mustTake(t, b, keyed(1)); later == first { // the state knows the key from now on
		t.Errorf("after its delivery it is %s again", later)
	}
}

// Many writers wait for one sync.
func TestTake_SharesSyncs(t *testing.T) {
	t.Parallel()
	slow := &slowSync{FS: vfs.NewMem(), entered: make(chan struct{}, 100), release: make(chan struct{})}
	b := open(t, slow, nil)
	const writers = 50
	done := make(chan error, writers)
	take := func(i int) {
		_, err := b.Take(view(fmt.Sprint(i)), 0)
		done <- err
	}
	go take(0)
	<-slow.entered // the first one has the disk
	for i := 1; i < writers; i++ {
		go take(i)
	}
	for { // until all others have queued up
		b.mu.Lock()
		n := len(b.mu.queue)
		b.mu.Unlock()
		if n == writers-1 {
			break
		}
		runtime.Gosched()
	}
	close(slow.release)
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := slow.syncs(); n > 2 || b.Status().Pending != writers {
		t.Errorf("%d writers took %d syncs of the file; %+v", writers, n, b.Status())
	}
}

// A disk that fails ends the taking, for good; what was taken before can be delivered.
func TestTake_FailsClosed(t *testing.T) {
	t.Parallel()
	bad := &slowSync{FS: vfs.NewMem(), entered: make(chan struct{}, 100), release: make(chan struct{})}
	close(bad.release)
	b := open(t, bad, nil)
	mustTake(t, b, view("a"))
	bad.fail.Store(true)
	if _, err := b.Take(view("b"), 0); !isType[*UnsureError](err) {
		t.Errorf("the write whose sync failed: %v", err)
	}
	bad.fail.Store(false)
	if _, err := b.Take(view("c"), 0); !isType[*FailedError](err) {
		t.Errorf("the next one: %v", err)
	}
	if due := b.Due(func(Chain) bool { return true }); len(due) != 1 || len(due[0].Ops) != 1 {
		t.Errorf("due %+v", due)
	}
	b.Tidy()
	if b.Status().Failed == nil {
		t.Error("status does not say so")
	}
	_ = b.Close()
	if b = open(t, bad, nil); b.Status().Failed != nil || b.Status().Pending < 1 {
		t.Errorf("after a restart: %+v", b.Status())
	}
	mustTake(t, b, view("d"))
}

func BenchmarkTake(b *testing.B) {
	box := open(b, vfs.Default, func(o *Options) { o.Dir = b.TempDir(); o.MaxBytes = 1 << 30 })
	write := view("item-000000")
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := box.Take(write, 0); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
