package journal

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// KindPinEnded is the kind of PinEnded.
const KindPinEnded Kind = "log_pin_ended"

// PinEnded is a member whose log waited for another one, and does not any more: it is as large as it may be, or
// has waited for as long.
type PinEnded struct {
	Group ident.GroupID  `json:"group,string"`
	ID    ident.MemberID `json:"id,string"` // of who fetched an artifact, and did not come up to it
	Name  string         `json:"name"`
	Index uint64         `json:"index"` // from which on the log was kept
}

func (PinEnded) Kind() Kind { return KindPinEnded }
func (f PinEnded) Text() string {
	return fmt.Sprintf("keeps its log from index %d on no more for %s, which has to fetch again what it had fetched%s", f.Index, who(f.ID, f.Name), ofGroup(f.Group))
}
func (PinEnded) Same() string { return "" }
