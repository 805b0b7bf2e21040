package datadir_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
)

// A book is whole or the one before, whenever the power fails; a damaged one is told from none.
func TestOperations_AreKept(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	d, err := open(fs)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := d.Operations(); b != nil || err != nil {
		t.Errorf("of a fresh directory: %q, %v", b, err)
	}
	for _, book := range []string{"one", "two"} {
		if err := d.KeepOperations([]byte(book)); err != nil {
			t.Fatal(err)
		}
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err = open(crashed)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if b, err := d.Operations(); string(b) != "two" || err != nil {
		t.Errorf("after a power loss: %q, %v", b, err)
	}
	if err := durable.WriteFile(crashed, crashed.PathJoin(root, "operations"), []byte("scribble")); err != nil {
		t.Fatal(err)
	}
	if b, err := d.Operations(); !errors.As(err, new(*durable.CorruptError)) {
		t.Errorf("of a damaged file: %q, %v", b, err)
	}
}
