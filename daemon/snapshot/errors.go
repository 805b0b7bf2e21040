package snapshot

import (
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

// What a Stager says to somebody who should ask again.
var (
	ErrStaging = errors.New("an artifact is being staged")
	ErrBusy    = errors.New("as many transfers are under way as this member allows")
	ErrClosed  = errors.New("the replica that staged artifacts was closed")
)

// BehindError says that the state here does not reach what was asked for yet: ask again.
type BehindError struct{ Want, Have uint64 }

func (e *BehindError) Error() string {
	return fmt.Sprintf("an artifact must hold index %d, state here is at %d", e.Want, e.Have)
}

// ManifestError refuses a manifest. Nothing of it was used.
type ManifestError struct{ Detail string }

func (e *ManifestError) Error() string { return "manifest refused: " + e.Detail }

// FormatError refuses an artifact that this binary cannot use: a newer one made it, or it has features that
// this one lacks.
type FormatError struct {
	Pebble, State uint32
	Missing       ident.Capabilities
}

func (e *FormatError) Error() string {
	if e.Missing != 0 {
		return fmt.Sprintf("upgrade_required: the artifact makes use of %s, which this binary lacks", e.Missing)
	}
	return fmt.Sprintf("upgrade_required: the artifact has formats %d and %d, this binary reads up to %d and %d", e.Pebble, e.State, state.Format, StateFormat)
}

// NoRoomError says that an artifact does not fit on the disk.
type NoRoomError struct{ Need, Free uint64 }

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("an artifact needs %d bytes of disk, %d are free", e.Need, e.Free)
}

// ProofError says that the files of an artifact are those of its manifest, and that the state in them is not
// the one that it promises, or cannot be read: what its source has is bad.
type ProofError struct {
	Source   ident.MemberID
	Artifact ID
	Err      error
}

func (e *ProofError) Error() string {
	return fmt.Sprintf("artifact %s of member %s refused: %v", e.Artifact, e.Source, e.Err)
}

func (e *ProofError) Unwrap() error { return e.Err }

// TransferError says that what arrived is not what the manifest promises.
type TransferError struct {
	Source ident.MemberID
	File   string
	Detail string
}

func (e *TransferError) Error() string {
	return fmt.Sprintf("artifact of member %s: file %s: %s", e.Source, e.File, e.Detail)
}
