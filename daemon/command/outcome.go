package command

import "github.com/tidaldb/tidal/daemon/ident"

// The codes of refusals, as the gateway's table of error codes has them.
const (
	CodeBadRequest = "bad_request"
	CodeNotFound   = "not_found"
)

// Refusal says why one record of a write was not taken; the others were.
type Refusal struct {
	Record int // position in Write.Records
	Code   string
	Detail string // one sentence for people
}

// Outcome is what became of one write. It depends on the state and the entry alone: every member that
// applies the entry finds the same.
type Outcome struct {
	Refused []Refusal // by Record, ascending
	Created bool      // an item was made that did not exist
}

// Applied is one applied entry, as observers receive it: in the order of the log, each once while the
// process lives.
type Applied struct {
	ID       ident.EntryID
	Stamp    ident.Stamp // 0 where the entry has none
	Payload  []byte      // read-only; of a configuration change: nil
	Outcomes []Outcome   // one a write; nil for other entries
}
