package datadir

import (
	"errors"
	"fmt"
	"os"

	"github.com/tidaldb/tidal/daemon/durable"
)

// Witness returns the content of the file `witness` as it was last saved, at most maxBytes; nil: it
// never was. Unlike `member` and `votes` it holds no promise of this member's own: it is not read at the
// opening, its loss is no amnesia, and a write of it that fails may be tried again.
func (d *Dir) Witness(maxBytes int64) ([]byte, error) {
	b, err := durable.ReadFile(d.opts.FS, d.path.of(witnessName), maxBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// SaveWitness replaces the file. It holds up no vote.
func (d *Dir) SaveWitness(content []byte) error {
	d.saving.Lock()
	defer d.saving.Unlock()
	if err := durable.WriteFile(d.opts.FS, d.path.of(witnessName), content); err != nil {
		return fmt.Errorf("save what others promised: %w", err)
	}
	return nil
}
