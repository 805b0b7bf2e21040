package command

import (
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

// The codes of refusals, as the gateway's table of error codes has them.
const (
	CodeBadRequest         = "bad_request"
	CodeUnknownCollection  = "unknown_collection"
	CodeUnknownSignal      = "unknown_signal"
	CodeAttributeMismatch  = "attribute_mismatch"
	CodeDimensionMismatch  = "dimension_mismatch"
	CodeSchemaInUse        = "schema_in_use"
	CodeTooManyCollections = "too_many_collections"
	CodeKeyMismatch        = "idempotency_mismatch"
	CodeTooManyKeys        = "too_many_keys"

	// Of deliveries of an outbox, which only members make.
	CodeOutboxGap     = "outbox_gap"     // operations before these are missing: deliver them first
	CodeOutboxForked  = "outbox_forked"  // these do not continue what was delivered before
	CodeOutboxExpired = "outbox_expired" // these may have been delivered: it is not known any more
)

// Refusal says why one record of a write was not taken; the others were. Record is its position in
// Write.Records, Detail one sentence for people.
type Refusal = entity.Refusal

// Outcome is what became of one write. It depends on the state and the entry alone: every member that
// applies the entry finds the same.
type Outcome struct {
	Refused []Refusal // by Record, ascending
	Created bool      // an item or a collection was made that did not exist
	// Denied says why nothing of the write was taken: its idempotency key belongs to another one, or
	// there is no room for it. nil: it was.
	Denied *Refusal
	// Version is that of the schema that was declared, if one was: the entry that changed it last.
	Version uint64
	// First is the entry in which the same was taken before: of the write with this key, or of the
	// only record with its key. Zero: it is this entry.
	First ident.EntryID
}

// Applied is one applied entry, as observers receive it: in the order of the log, each once while the
// process lives.
type Applied struct {
	ID       ident.EntryID
	Stamp    ident.Stamp // 0 where the entry has none
	Payload  []byte      // read-only; of a configuration change: nil
	Outcomes []Outcome   // one a write; nil for other entries
}
