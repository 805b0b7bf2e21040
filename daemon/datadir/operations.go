package datadir

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/durable"
)

const (
	// operationsName names what the member knows of the verbs that it ran.
	operationsName = "operations"
	// maxOperationsBytes bounds the file. A book of as many operations as are kept has some 500 KiB.
	maxOperationsBytes = durable.EnvelopeBytes + 64<<20
)

// operationsFormat is the envelope around a book of package ops, which is JSON: its fields are only added.
func operationsFormat() durable.Format { return durable.Format{Magic: "tidalOPS", Version: 1} }

// Operations returns the book that was kept last; nil where there is none. Errors: *durable.CorruptError,
// *durable.VersionError, of reading.
func (d *Dir) Operations() ([]byte, error) {
	content, ok, err := maybeRead(d.path, operationsName, maxOperationsBytes)
	if err != nil || !ok {
		return nil, err
	}
	return operationsFormat().Decode(operationsName, content)
}

// KeepOperations replaces the book. An error of it says nothing about the other files: no promise to
// another member rests on this one, so it stops no other write.
func (d *Dir) KeepOperations(book []byte) error {
	if len(book) > maxOperationsBytes-durable.EnvelopeBytes {
		return fmt.Errorf("keep operations: %d bytes, at most %d", len(book), maxOperationsBytes-durable.EnvelopeBytes)
	}
	return durable.WriteFile(d.opts.FS, d.path.of(operationsName), operationsFormat().Encode(book))
}
