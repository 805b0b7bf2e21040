package durable_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/durable/durabletest"
)

const maxBytes = 1 << 10

func mustWrite(t *testing.T, fs vfs.FS, path, content string) {
	t.Helper()
	if err := durable.WriteFile(fs, path, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

func TestWriteFile_IsOldOrNewAtEveryCrash(t *testing.T) {
	t.Parallel()
	durabletest.Sweep(t,
		func(fs vfs.FS) { mustWrite(t, fs, "/f", "old") },
		func(fs vfs.FS) error { return durable.WriteFile(fs, "/f", []byte("new")) },
		func(t *testing.T, disk *vfs.MemFS, done bool) {
			got, err := durable.ReadFile(disk, "/f", maxBytes)
			if err != nil {
				t.Errorf("ReadFile = %v", err)
			}
			if string(got) != "new" && (done || string(got) != "old") {
				t.Errorf("after a crash (done: %t) the file holds %q", done, got)
			}
			mustWrite(t, disk, "/f", "third") // whatever the crash left lying about
		})
}

func TestWriteFileFunc_LeavesTheFileAloneWhenContentFails(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	mustWrite(t, mem, "/f", "old")
	cause := errors.New("no content")
	err := durable.WriteFileFunc(mem, "/f", func(temp string) ([]byte, error) {
		if _, err := mem.Stat(temp); err != nil {
			t.Errorf("the temporary file is not there yet: %v", err)
		}
		return nil, cause
	})
	if !errors.Is(err, cause) {
		t.Errorf("WriteFileFunc = %v, want %v", err, cause)
	}
	if got, _ := durable.ReadFile(mem, "/f", maxBytes); string(got) != "old" {
		t.Errorf("the file holds %q, want old", got)
	}
}

func TestMkdirAll_IsDurableWithEveryAncestor(t *testing.T) {
	t.Parallel()
	durabletest.Sweep(t,
		func(vfs.FS) {},
		func(fs vfs.FS) error { return durable.MkdirAll(fs, "/a/b/c", 0o700) },
		func(t *testing.T, disk *vfs.MemFS, done bool) {
			if _, err := disk.Stat("/a/b/c"); done && err != nil {
				t.Errorf("Stat = %v", err)
			}
		})
}

// A process that is killed between making a directory and syncing its parent leaves a directory that
// is there and not durable. The next one must not take it for durable.
func TestMkdirAll_SyncsWhatAKilledProcessMade(t *testing.T) {
	t.Parallel()
	for cut := range 12 {
		mem, n := vfs.NewCrashableMem(), 0
		killed := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if n++; n > cut {
				return durabletest.ErrPowerLost
			}
			return nil
		}))
		_ = durable.MkdirAll(killed, "/a/b/c", 0o700)
		if err := durable.MkdirAll(mem, "/a/b/c", 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := mem.CrashClone(vfs.CrashCloneCfg{}).Stat("/a/b/c"); err != nil {
			t.Errorf("killed after %d calls: %v", cut, err)
		}
	}
}

func TestMkdirAll_RefusesAFileInTheWay(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	mustWrite(t, mem, "/a", "")
	for _, dir := range []string{"/a", "/a/b"} {
		if err := durable.MkdirAll(mem, dir, 0o700); err == nil {
			t.Errorf("MkdirAll(%s) = nil, want an error", dir)
		}
	}
}

func TestMkdirAll_OnTheRealFileSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/a/b"
	for range 2 {
		if err := durable.MkdirAll(vfs.Default, dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("Stat(%s) = %v, %v, want mode 0700", dir, info, err)
	}
	if err := durable.MkdirAll(vfs.Default, "/", 0o700); err != nil {
		t.Errorf("MkdirAll(/) = %v", err)
	}
}

func TestRename_IsDurableInBothParents(t *testing.T) {
	t.Parallel()
	durabletest.Sweep(t,
		func(fs vfs.FS) {
			for _, dir := range []string{"/a", "/b"} {
				if err := durable.MkdirAll(fs, dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			mustWrite(t, fs, "/a/f", "content")
		},
		func(fs vfs.FS) error { return durable.Rename(fs, "/a/f", "/b/g") },
		func(t *testing.T, disk *vfs.MemFS, done bool) {
			_, from := disk.Stat("/a/f")
			_, to := disk.Stat("/b/g")
			if from != nil && to != nil {
				t.Errorf("the file is gone: %v, %v", from, to)
			}
			if done && (from == nil || to != nil) {
				t.Errorf("after Rename: from %v, to %v", from, to)
			}
		})
}

func TestReadFile_RefusesWhatNobodyWrote(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	mustWrite(t, mem, "/f", "12345")
	if _, err := durable.ReadFile(mem, "/f", 4); !isCorrupt(err) {
		t.Errorf("ReadFile(5 bytes, at most 4) = %v, want a *CorruptError", err)
	}
	if got, err := durable.ReadFile(mem, "/f", 5); err != nil || string(got) != "12345" {
		t.Errorf("ReadFile = %q, %v", got, err)
	}
	if _, err := durable.ReadFile(mem, "/g", 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadFile of nothing = %v, want fs.ErrNotExist", err)
	}
}

// Every error of the file system surfaces, and none passes for success.
func TestErrors_Surface(t *testing.T) {
	t.Parallel()
	ops := map[string]func(fs vfs.FS) error{
		"WriteFile": func(fs vfs.FS) error { return durable.WriteFile(fs, "/d/f", []byte("new")) },
		"Rename":    func(fs vfs.FS) error { return durable.Rename(fs, "/d/f", "/e/f") },
		"MkdirAll":  func(fs vfs.FS) error { return durable.MkdirAll(fs, "/x/y", 0o700) },
		"SyncDir":   func(fs vfs.FS) error { return durable.SyncDir(fs, "/d") },
		"ReadFile": func(fs vfs.FS) error {
			_, err := durable.ReadFile(fs, "/d/f", maxBytes)
			return err
		},
	}
	for name, op := range ops {
		for i := int32(0); ; i++ {
			mem := vfs.NewMem()
			for _, dir := range []string{"/d", "/e"} {
				if err := mem.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			mustWrite(t, mem, "/d/f", "old")
			counter := &errorfs.Counter{Injector: errorfs.OnIndex(i)}
			err := op(errorfs.Wrap(mem, counter))
			if counter.Load() == 0 {
				if err != nil || i == 0 {
					t.Errorf("%s: %d calls, %v", name, i, err)
				}
				break
			}
			if !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("%s with an error in call %d = %v", name, i, err)
			}
		}
	}
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*durable.CorruptError](err)
	return ok
}

var format = durable.Format{Magic: "tidal-t\n", Version: 3}

func TestFormat_Golden(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/format-v3.hex")
	if err != nil {
		t.Fatal(err)
	}
	encoded := format.Encode([]byte("payload"))
	if got := fmt.Sprintf("%x\n", encoded); got != string(want) {
		t.Errorf("Encode = %s, want %s", got, want)
	}
	payload, err := format.Decode("f", encoded)
	if err != nil || string(payload) != "payload" {
		t.Errorf("Decode = %q, %v", payload, err)
	}
}

func TestFormat_RefusesEveryFlippedByteAndEveryLength(t *testing.T) {
	t.Parallel()
	sound := format.Encode([]byte("payload"))
	for i := range sound {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(sound)
			b[i] ^= flip
			if _, err := format.Decode("f", b); !isCorrupt(err) {
				t.Errorf("byte %d ^ %#x: %v, want a *CorruptError", i, flip, err)
			}
		}
	}
	for n := range len(sound) {
		if _, err := format.Decode("f", sound[:n]); !isCorrupt(err) {
			t.Errorf("%d bytes: %v, want a *CorruptError", n, err)
		}
	}
	if _, err := format.Decode("f", append(sound, 0)); !isCorrupt(err) {
		t.Errorf("one byte more: %v, want a *CorruptError", err)
	}
}

func TestFormat_TellsANewerVersionFromDamage(t *testing.T) {
	t.Parallel()
	newer := durable.Format{Magic: format.Magic, Version: 4}.Encode([]byte("payload"))
	_, err := format.Decode("f", newer)
	if e, ok := errors.AsType[*durable.VersionError](err); !ok || e.Have != 4 || e.Max != 3 || e.File != "f" {
		t.Errorf("Decode = %v, want a *VersionError with 4 and 3", err)
	}
}

func FuzzFormat_Decode(f *testing.F) {
	f.Add(format.Encode([]byte("payload")))
	f.Add(format.Encode(nil))
	f.Add([]byte(format.Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := format.Decode("f", b)
		if err == nil && !bytes.Equal(format.Encode(payload), b) {
			t.Errorf("Decode(%x) took what Encode does not write", b)
		}
	})
}
