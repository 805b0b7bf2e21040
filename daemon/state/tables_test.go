package state_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/state"
)

// writeTable writes a table that has blocks of every kind.
func writeTable(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	versions := *pebble.DefaultComparer // keys have versions: older ones go into value blocks
	versions.Split = func(key []byte) int { return max(0, len(key)-1) }
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{
		Comparer: &versions, TableFormat: sstable.TableFormatPebblev6,
		BlockSize: 128, IndexBlockSize: 128, FilterPolicy: bloom.FilterPolicy(10),
	})
	for i := range 60 {
		err = errors.Join(err, w.Set(fmt.Appendf(nil, "key %02d %c", i/2, 'a'+i%2), fmt.Appendf(nil, "value %d of a row", i)))
	}
	err = errors.Join(err,
		w.DeleteRange([]byte("l"), []byte("m")),
		w.RangeKeySet([]byte("n"), []byte("o"), nil, []byte("value")),
		w.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// region is a part of a table.
type region struct {
	kind       string
	begin, end uint64
}

// regions returns what the table in a file consists of, by kind.
func regions(t *testing.T, fs vfs.FS, name string) (all []region) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		t.Fatal(err)
	}
	var opts pebble.Options
	opts.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, opts.MakeReaderOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := r.Layout()
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind string, blocks ...block.Handle) {
		if len(blocks) == 0 {
			t.Errorf("the table has no block of %s", kind)
		}
		for _, b := range blocks {
			if b.Length == 0 {
				t.Errorf("the table has no block of %s", kind)
			}
			all = append(all, region{kind, b.Offset, b.Offset + b.Length}, region{"trailer of " + kind, b.Offset + b.Length, b.Offset + b.Length + 5})
		}
	}
	for _, b := range l.Data {
		add("data", b.Handle)
	}
	add("index", l.Index...)
	add("top index", l.TopIndex)
	for _, b := range l.Filter {
		add("filter", b.Handle)
	}
	add("range deletions", l.RangeDel)
	add("range keys", l.RangeKey)
	add("values", l.ValueBlock...)
	add("index of values", l.ValueIndex)
	add("properties", l.Properties)
	add("metaindex", l.MetaIndex)
	all = append(all, region{"footer", l.Footer.Offset, l.Footer.Offset + l.Footer.Length})
	if len(l.Data) < 2 || len(l.Index) < 2 || len(l.Filter) != 1 {
		t.Errorf("%d blocks of data, %d of indexes, %d filters", len(l.Data), len(l.Index), len(l.Filter))
	}
	slices.SortFunc(all, func(a, b region) int { return int(a.begin) - int(b.begin) })
	return all
}

// content returns what is in a file.
func content(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := durable.ReadFile(fs, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// No byte of a table rots unnoticed, and there is none between the parts that are known.
func TestVerifyTable_FindsRotAnywhere(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	writeTable(t, mem, "000001.sst")
	if err := state.VerifyTable(mem, "000001.sst", nil); err != nil {
		t.Fatal(err)
	}
	sound := content(t, mem, "000001.sst")
	at := uint64(0)
	for _, r := range regions(t, mem, "000001.sst") {
		if r.begin != at {
			t.Errorf("%s begins at %d, what is before ends at %d", r.kind, r.begin, at)
		}
		for ; at < r.end; at++ {
			bits := []int{int(at % 8)}
			if r.kind == "footer" { // which says how the rest, and itself, is to be read
				bits = []int{0, 1, 2, 3, 4, 5, 6, 7}
			}
			for _, bit := range bits {
				rotten := slices.Clone(sound)
				rotten[at] ^= 1 << bit
				write(t, mem, "000002.sst", rotten)
				if err := state.VerifyTable(mem, "000002.sst", nil); err == nil {
					t.Errorf("bit %d at offset %d, in %s: not noticed", bit, at, r.kind)
				}
			}
		}
	}
	if at != uint64(len(sound)) {
		t.Errorf("the last part ends at %d of %d", at, len(sound))
	}
	for n := 0; n < len(sound); n += 7 {
		write(t, mem, "000002.sst", sound[:n])
		if err := state.VerifyTable(mem, "000002.sst", nil); err == nil {
			t.Errorf("the first %d bytes of %d are a sound table", n, len(sound))
		}
	}
}

func write(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Tables that a compaction removes while others are verified are no damage; one that is gone and still needed is.
func TestVerifyTables_LeavesOutWhatIsNotNeededAnyMore(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	if err := create(mem); err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(state.Options{FS: mem, Dir: dir, Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	index := s.Position().Applied.Index
	more := func(flushes int) (err error) {
		for range flushes {
			index++
			_, failed := s.Flush()
			err = errors.Join(err, failed, commit(s, index))
		}
		_, failed := s.Flush()
		return errors.Join(err, failed)
	}
	tables := func() (names []string) {
		all, err := mem.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if strings.HasSuffix(name, state.TableSuffix) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	v := s.NewView() // before: what is there by now stays for it
	if err := more(2); err != nil {
		t.Fatal(err)
	}
	was := tables()
	if len(was) < 2 {
		t.Fatalf("tables %q", was)
	}
	err = v.VerifyTables(func(int) error {
		for n := 0; slices.Contains(tables(), was[len(was)-1]); n++ {
			if n == 20 {
				return fmt.Errorf("nothing was compacted: %q", tables())
			}
			if err := more(1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("while tables go: %v", err)
	}
	left := tables()
	if err := mem.Remove(mem.PathJoin(dir, left[len(left)-1])); err != nil {
		t.Fatal(err)
	}
	if err := v.VerifyTables(nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without one of its tables: %v", err)
	}
	if err := errors.Join(v.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
