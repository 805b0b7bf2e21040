package simfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

const cat = vfs.WriteCategoryUnspecified

func create(t testing.TB, fs *FS, name, text string) vfs.File {
	t.Helper()
	f, err := fs.Create(name, cat)
	if err != nil {
		t.Fatalf("Create(%s) = %v", name, err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatalf("Write(%s) = %v", name, err)
	}
	return f
}

func syncDir(t testing.TB, fs *FS, name string) {
	t.Helper()
	d, err := fs.OpenDir(name)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		t.Fatalf("sync %s: %v", name, err)
	}
}

func read(fs *FS, name string) string {
	f, err := fs.Open(name)
	if err != nil {
		return "missing"
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// What each class of crash leaves of: a synced file; bytes appended to it; a renamed file whose
// directory was not synced; a new file whose bytes were not.
func TestCrash_KeepsWhatWasSynced(t *testing.T) {
	for _, tc := range []struct {
		class           Crash
		synced, renamed string
	}{
		{Strict, "old", "missing"},
		{Everything, "old+new", "to"},
		{NamesFirst, "old", ""},
		{BytesFirst, "old+new", "missing"},
	} {
		fs := New()
		f := create(t, fs, "/a", "old")
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		syncDir(t, fs, "/")
		if _, err := f.Write([]byte("+new")); err != nil {
			t.Fatal(err)
		}
		create(t, fs, "/b.tmp", "to")
		if err := fs.Rename("/b.tmp", "/b"); err != nil {
			t.Fatal(err)
		}
		image := fs.Crash(tc.class, 1)
		if got := read(image, "/a"); got != tc.synced {
			t.Errorf("%s: the synced file holds %q, want %q", tc.class, got, tc.synced)
		}
		if got := read(image, "/b"); got != tc.renamed {
			t.Errorf("%s: the renamed file holds %q, want %q", tc.class, got, tc.renamed)
		}
		if read(fs, "/a") != "old+new" || read(fs, "/b") != "to" {
			t.Errorf("%s: the crash changed the original", tc.class)
		}
	}
}

// Whatever happens to what was not synced, what was synced is there, and equal seeds agree.
func TestCrash_IsSeedStableAndKeepsWhatWasSynced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := New()
		synced := map[string]string{}
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			name := "/" + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			f, err := fs.OpenReadWrite(name, cat)
			if err != nil {
				t.Fatal(err)
			}
			data := bytes.Repeat([]byte{byte(rapid.IntRange(1, 255).Draw(t, "byte"))}, rapid.IntRange(1, 2000).Draw(t, "size"))
			if _, err := f.WriteAt(data, int64(len(read(fs, name)))); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "sync") {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				d, _ := fs.OpenDir("/")
				if err := d.Sync(); err != nil {
					t.Fatal(err)
				}
				synced[name] = read(fs, name)
			}
		}
		class := rapid.SampledFrom(Crashes()).Draw(t, "class")
		seed := rapid.Uint64().Draw(t, "seed")
		one, two := fs.Crash(class, seed), fs.Crash(class, seed)
		for _, name := range []string{"/a", "/b", "/c"} {
			if read(one, name) != read(two, name) {
				t.Fatalf("%s: seed %d gave two images of %s", class, seed, name)
			}
			if want, ok := synced[name]; ok && !strings.HasPrefix(read(one, name), want) {
				t.Fatalf("%s: %s lost synced bytes", class, name)
			}
		}
		if err := one.Lossless(); err != nil {
			t.Fatalf("%s: the image itself: %v", class, err)
		}
	})
}

func TestFault_FailedSyncDropsPages(t *testing.T) {
	fs := New()
	f := create(t, fs, "/a", "x")
	fs.SetFault(func(op Op) Fault {
		if op.Kind == OpSync {
			return Fault{Err: syscall.EIO, DropPages: true}
		}
		return Fault{}
	})
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync = %v, want EIO", err)
	}
	fs.SetFault(nil)
	if err := f.Sync(); err != nil {
		t.Fatalf("second Sync = %v, want nil: that is the trap", err)
	}
	syncDir(t, fs, "/")
	if got := read(fs, "/a"); got != "x" {
		t.Errorf("the process reads %q, want its own byte", got)
	}
	if got := read(fs.Crash(Strict, 0), "/a"); got != "" {
		t.Errorf("the disk holds %q, want nothing", got)
	}
}

func TestFault_QuotaWritesWhatFits(t *testing.T) {
	fs := New()
	f := create(t, fs, "/a", "12")
	fs.SetQuota(5)
	n, err := f.Write([]byte("34567"))
	if n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Write = %d, %v, want 3, ENOSPC", n, err)
	}
	if _, err := fs.Create("/b", cat); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Create = %v, want ENOSPC", err)
	}
	if err := fs.Remove("/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Create("/b", cat); err != nil {
		t.Errorf("Create after Remove = %v", err)
	}
}

func TestPower_NothingWorksOnceItIsOff(t *testing.T) {
	fs := New()
	f := create(t, fs, "/a", "x")
	fs.CutPowerAt(1)
	if err := f.Sync(); !errors.Is(err, ErrCrashed) {
		t.Fatalf("Sync = %v, want ErrCrashed", err)
	}
	if _, err := fs.Stat("/a"); !errors.Is(err, ErrCrashed) {
		t.Errorf("Stat = %v, want ErrCrashed", err)
	}
	if got := read(fs.Crash(Everything, 0), "/a"); got != "x" {
		t.Errorf("image holds %q, want the byte that was written before the cut", got)
	}
}

func TestErrors_AreThoseOfAnOperatingSystem(t *testing.T) {
	fs := New()
	if _, err := fs.Open("/no"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open = %v, want ErrNotExist", err)
	}
	if err := fs.MkdirAll("/d/e", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove("/d"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("Remove = %v, want ENOTEMPTY", err)
	}
	l, err := fs.Lock("/LOCK")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Lock("/LOCK"); err == nil {
		t.Error("a second Lock succeeded")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a, _ := fs.Inode("/d")
	if err := fs.CopyTree("/d", "/copy"); err != nil {
		t.Fatal(err)
	}
	if b, _ := fs.Inode("/copy"); a == b {
		t.Error("a copy has the inode of its original")
	}
}

// Pebble is the strictest user there is: with a log that is synced, every acknowledged key is there
// after every class of crash.
func TestPebble_SurvivesEveryCrash(t *testing.T) {
	for _, class := range Crashes() {
		fs := New()
		db, err := pebble.Open("/db", &pebble.Options{FS: fs, Logger: silent{}})
		if err != nil {
			t.Fatalf("%s: open: %v", class, err)
		}
		for i := range byte(50) {
			if err := db.Set([]byte{i}, bytes.Repeat([]byte{i}, 1000), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
		image := fs.Crash(class, 7)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db, err = pebble.Open("/db", &pebble.Options{FS: image, Logger: silent{}})
		if err != nil {
			t.Fatalf("%s: open the image: %v", class, err)
		}
		for i := range byte(50) {
			v, closer, err := db.Get([]byte{i})
			if err != nil {
				t.Fatalf("%s: key %d: %v", class, i, err)
			}
			if len(v) != 1000 {
				t.Errorf("%s: key %d has %d bytes", class, i, len(v))
			}
			_ = closer.Close()
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// A fault meets a file by the name it has, not by the one under which it was opened.
func TestFault_SeesTheNameAfterARename(t *testing.T) {
	fs := New()
	f := create(t, fs, "/a.tmp", "")
	if err := fs.Rename("/a.tmp", "/a"); err != nil {
		t.Fatal(err)
	}
	var got string
	fs.SetFault(func(op Op) Fault {
		got = op.Path
		return Fault{}
	})
	if _, err := f.Write([]byte("x")); err != nil || got != "/a" {
		t.Errorf("a write to /a is one to %q, %v", got, err)
	}
}

func TestCutPower_IsAtOnce(t *testing.T) {
	fs := New()
	f := create(t, fs, "/a", "")
	fs.CutPower()
	if _, err := f.Write([]byte("x")); !errors.Is(err, ErrCrashed) || !fs.Off() {
		t.Errorf("a write after it: %v", err)
	}
}
