package apply

import (
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

// Birth fills the state of index 1, for state.Create: the roster r, which must be valid, and the
// default collection. Every member born by one genesis record gets the same state. Its digest is made
// when it is opened first.
func Birth(b *state.Batch, r membership.Roster) error {
	b.Set(entity.RosterKey(), r.Encode())
	c := entity.DefaultCollection()
	b.Set(entity.CollectionKey(c.Name), c.Encode())
	return nil
}
