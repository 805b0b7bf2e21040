package entity

import (
	"encoding/binary"
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// EncodeFeatures returns the record of what a log has made use of: u64, little-endian.
func EncodeFeatures(c ident.Capabilities) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(c))
}

// DecodeFeatures reads what EncodeFeatures wrote. Other bytes give a *FormatError.
func DecodeFeatures(b []byte) (ident.Capabilities, error) {
	if len(b) != 8 {
		return 0, &FormatError{Record: "features", Detail: fmt.Sprintf("%d bytes, want 8", len(b))}
	}
	return ident.Capabilities(binary.LittleEndian.Uint64(b)), nil
}
