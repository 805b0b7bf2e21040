package command

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Kind is what an entry is: the first byte of its payload.
type Kind uint8

// The kinds of entries.
const (
	KindEmpty   Kind = 0 // no payload at all: raft's own entry
	KindWrites  Kind = 1 // writes of clients
	KindRoster  Kind = 2 // a roster in which no role changes
	KindGenesis Kind = 3 // index 1, which no log contains
	KindFeature Kind = 4 // from here on the log may hold what these capabilities stand for
	KindCheck   Kind = 5 // members compare the digests of their states here
)

// RecordKind is what a record of a write is: its first byte, below 128.
type RecordKind uint8

// The kinds of records.
const (
	RecordSignal     RecordKind = 1
	RecordItem       RecordKind = 2
	RecordEmbedding  RecordKind = 3
	RecordHardNeg    RecordKind = 4
	RecordDelete     RecordKind = 5
	RecordCollection RecordKind = 6
	RecordOutbox     RecordKind = 7 // operations of an outbox, delivered

	RecordOutboxForget RecordKind = 8
)

// recordKeyed is set in the first byte of a record that carries an idempotency key.
const recordKeyed = 0x80

// The scopes of the table of kinds.
const (
	ScopeEntry  = "entry"
	ScopeRecord = "record"
)

// KindSpec is one row of the table of kinds.
type KindSpec struct {
	Scope      string // ScopeEntry or ScopeRecord
	Number     uint8
	Name       string
	Capability ident.Capabilities // a member without it must never be sent this
}

// Kinds returns the whole table, in the order of its document.
func Kinds() []KindSpec {
	return []KindSpec{
		{ScopeEntry, uint8(KindEmpty), "empty", ident.CapBase},
		{ScopeEntry, uint8(KindWrites), "writes", ident.CapBase},
		{ScopeEntry, uint8(KindRoster), "roster", ident.CapBase},
		{ScopeEntry, uint8(KindGenesis), "genesis", ident.CapBase},
		{ScopeEntry, uint8(KindFeature), "feature", ident.CapBase},
		{ScopeEntry, uint8(KindCheck), "check", ident.CapBase},
		{ScopeRecord, uint8(RecordSignal), "signal", ident.CapBase},
		{ScopeRecord, uint8(RecordItem), "item", ident.CapBase},
		{ScopeRecord, uint8(RecordEmbedding), "embedding", ident.CapBase},
		{ScopeRecord, uint8(RecordHardNeg), "hardneg", ident.CapBase},
		{ScopeRecord, uint8(RecordDelete), "delete", ident.CapBase},
		{ScopeRecord, uint8(RecordCollection), "collection", ident.CapBase},
		{ScopeRecord, uint8(RecordOutbox), "outbox", ident.CapBase},
		{ScopeRecord, uint8(RecordOutboxForget), "outbox_forget", ident.CapBase},
	}
}

// String returns the name in the table.
func (k Kind) String() string { return name(ScopeEntry, uint8(k)) }

// String returns the name in the table.
func (k RecordKind) String() string { return name(ScopeRecord, uint8(k)) }

func name(scope string, number uint8) string {
	for _, k := range Kinds() {
		if k.Scope == scope && k.Number == number {
			return k.Name
		}
	}
	return fmt.Sprintf("%s%d", scope, number)
}

// UnknownKindError is what a newer binary wrote: the group stops applying as upgrade_required, with
// no data touched, and goes on after an upgrade.
type UnknownKindError struct {
	What   string // "entry kind", "record kind", "writes version", "write flags"
	Number uint64
}

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("upgrade required: unknown %s %d", e.What, e.Number)
}

// MalformedError is a payload that no member ever wrote.
type MalformedError struct {
	Kind   Kind
	Detail string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("malformed %s payload: %s", e.Kind, e.Detail)
}
