package apply

import (
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

// Birth fills the state of index 1, for state.Create: the roster r, which must be valid, and the
// default collection. Every member born by one genesis record gets the same state.
func Birth(b *state.Batch, r membership.Roster) error {
	t := txn{batch: b}
	t.put(entity.RosterKey(), r.Encode())
	c := entity.DefaultCollection()
	t.put(entity.CollectionKey(c.Name), c.Encode())
	return nil
}
