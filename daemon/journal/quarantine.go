package journal

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// The kinds of this file.
const (
	KindQuarantineEnded Kind = "quarantine_ended"
	KindReseededAgain   Kind = "reseeded_again"
	KindUnresolved      Kind = "divergence_unresolved"
	KindKeptCleared     Kind = "kept_cleared"
)

// QuarantineEnded is a replica whose data is sound again.
type QuarantineEnded struct {
	Group ident.GroupID `json:"group,string"`
	Cause string        `json:"cause"` // that put it there
}

func (QuarantineEnded) Kind() Kind { return KindQuarantineEnded }
func (f QuarantineEnded) Text() string {
	return fmt.Sprintf("is in quarantine (%s) no more%s", f.Cause, ofGroup(f.Group))
}
func (QuarantineEnded) Same() string { return "" }

// ReseededAgain is a replica that was installed more than once without a verified state in between.
type ReseededAgain struct {
	Group ident.GroupID `json:"group,string"`
	InRow int           `json:"in_a_row"`
}

func (ReseededAgain) Kind() Kind { return KindReseededAgain }
func (f ReseededAgain) Text() string {
	return fmt.Sprintf("was installed %d times in a row and its state was not verified in between%s", f.InRow, ofGroup(f.Group))
}
func (ReseededAgain) Same() string { return "" }

// Unresolved is a check at which voters have different states and none has a majority.
type Unresolved struct {
	Group ident.GroupID `json:"group,string"`
	Index uint64        `json:"index"` // of the check
}

func (Unresolved) Kind() Kind { return KindUnresolved }
func (f Unresolved) Text() string {
	return fmt.Sprintf("voters have different states at index %d, and no majority has the same: tidalctl verify%s", f.Index, ofGroup(f.Group))
}
func (f Unresolved) Same() string { return fmt.Sprintf("%s/%s/%d", KindUnresolved, f.Group, f.Index) }

// KeptCleared is replaced data that somebody had removed.
type KeptCleared struct {
	Group ident.GroupID `json:"group,string"`
	Dirs  int           `json:"dirs"`
	Bytes int64         `json:"bytes"`
}

func (KeptCleared) Kind() Kind { return KindKeptCleared }
func (f KeptCleared) Text() string {
	return fmt.Sprintf("removed what quarantines had kept: %d directories, %d bytes%s", f.Dirs, f.Bytes, ofGroup(f.Group))
}
func (KeptCleared) Same() string { return "" }
