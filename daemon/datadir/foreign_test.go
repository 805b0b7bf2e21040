package datadir_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/datadir"
)

// A member begins only where nobody else has anything, and a refusal touches nothing, not even for a lock.
func TestOpen_RefusesWhatIsNotAMembers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		holds []string // a directory ends in "/"
		want  string   // in the refusal; empty: it opens
	}{
		{"nothing", nil, ""},
		{"a fresh file system", []string{"lost+found/"}, ""},
		{"a first start that was cut short", []string{"LOCK", "votes.tmp"}, ""},
		{"a home", []string{".ssh/", "notes.txt"}, "holds .ssh/, notes.txt, and"},
		{"much", []string{"d", "a", "c/", "b", "e"}, "holds a, b, c/ and 2 more, and"},
		{"another store, whose lock has the name of ours", []string{"LOCK", "000002.log"}, "holds 000002.log, and"},
		{"etcd", []string{"member/"}, "holds member/, and"},
		{"a mount that is in use", []string{"lost+found/", "dump.sql"}, "holds dump.sql, and"},
		{"a file of the name", []string{"lost+found"}, "holds lost+found, and"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewMem()
			o := datadir.Options{Path: root, FS: mem, Name: "n1"}
			put(t, mem, tc.holds...)
			before := names(t, mem)
			d, err := datadir.Open(o)
			if tc.want == "" {
				if err != nil {
					t.Fatalf("Open = %v", err)
				}
				put(t, mem, "notes.txt") // beside a member it is let be
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if d, err = datadir.Open(o); err != nil {
					t.Fatalf("Open with a note beside it = %v", err)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if _, foreign := errors.AsType[*datadir.ForeignError](err); !foreign || !strings.Contains(err.Error(), tc.want) || datadir.Code(err) != "foreign_data_dir" {
				t.Errorf("Open = %v, want %q", err, tc.want)
			}
			if after := names(t, mem); !slices.Equal(before, after) {
				t.Errorf("the refusal made of %q %q", before, after)
			}
		})
	}
}

func names(t *testing.T, mem vfs.FS) []string {
	t.Helper()
	all, err := mem.List(root)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// put makes files and directories in root.
func put(t *testing.T, mem vfs.FS, names ...string) {
	t.Helper()
	if err := mem.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "/") {
			if err := mem.MkdirAll(mem.PathJoin(root, name), 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		f, err := mem.Create(mem.PathJoin(root, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
