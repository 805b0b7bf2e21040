package command

import (
	"encoding/binary"

	"github.com/zeebo/blake3"
)

// Key is an idempotency key as the log knows it: 16-byte hashes. Two that are equal in Hash come from
// the same client; they are about the same request if Body is equal too.
type Key struct {
	Hash [16]byte // of the client and the key it gave
	Body [16]byte // of what is asked for: the encoded records
}

// HashKey returns the Hash of the key that a client gave. Keys of different principals never meet.
func HashKey(principal, key string) [16]byte {
	b := binary.LittleEndian.AppendUint32([]byte("tidal key 1"), uint32(len(principal)))
	return hash16(append(append(b, principal...), key...))
}

// hash16 is the first half of BLAKE3.
func hash16(b []byte) [16]byte {
	sum := blake3.Sum256(b)
	return [16]byte(sum[:16])
}
