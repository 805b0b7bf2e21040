// Package auth holds the secrets of a member: the key that members share, the keys of the API, and the
// certificates of TLS. Keys of the API and certificates follow their files without a restart (Reloader);
// a changed file that cannot be used leaves what was in use.
//
// What it promises: comparisons take the same time whatever differs, secrets are never part of an
// error or of a printed value, and a secret in a file that others on the machine can read is refused.
//
// Callers: daemon reads the files that config names; httpd asks Allows; dev makes a peer key.
package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// PeerKeyBytes is the length of a peer key.
const PeerKeyBytes = 32

// Limits of the file of API keys. A key of 16 characters cannot be guessed by asking.
const (
	maxKeyFileBytes = 64 << 10
	minKeyBytes     = 16
	maxKeyBytes     = 512
)

// FileError refuses a file with secrets. Detail says nothing of them.
type FileError struct {
	Path   string
	Detail string
	Err    error // of the operating system; may be nil
}

func (e *FileError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("key file %s: %s: %v", e.Path, e.Detail, e.Err)
	}
	return fmt.Sprintf("key file %s: %s", e.Path, e.Detail)
}

func (e *FileError) Unwrap() error { return e.Err }

// ReadPeerKey reads the key that members show each other: 32 bytes.
func ReadPeerKey(path string) ([]byte, error) {
	b, err := readSecret(path, PeerKeyBytes)
	if err != nil {
		return nil, err
	}
	if len(b) != PeerKeyBytes {
		return nil, &FileError{Path: path, Detail: fmt.Sprintf("%d bytes, want %d: head -c %d /dev/urandom makes one", len(b), PeerKeyBytes, PeerKeyBytes)}
	}
	return b, nil
}

// MakePeerKey draws a key from r and writes it to a new file that only its owner can read. A file
// that exists is an error (fs.ErrExist) and stays as it is.
func MakePeerKey(path string, r io.Reader) (err error) {
	var key [PeerKeyBytes]byte
	if _, err := io.ReadFull(r, key[:]); err != nil {
		return fmt.Errorf("draw a peer key: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make a peer key: %w", err)
	}
	_, err = f.Write(key[:])
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the peer key %s: %w", path, err)
	}
	return nil
}

// PeerToken is a peer key as the value of a header, which cannot carry its bytes.
func PeerToken(key []byte) string { return hex.EncodeToString(key) }

// Keys are the keys of the API. The zero Keys allows nobody.
type Keys struct {
	// sums are the SHA-256 of the keys: of one length, so that a comparison tells nothing of a key's.
	sums [][sha256.Size]byte
}

// LoadKeys reads the API keys in the file at path, one a line, and adds the key given in the
// environment. Empty lines and lines that begin with # do not count. Either argument may be empty;
// with both it returns nil: there are no keys.
func LoadKeys(path, fromEnv string) (*Keys, error) {
	if path == "" && fromEnv == "" {
		return nil, nil
	}
	k := &Keys{}
	if fromEnv != "" {
		if err := k.add([]byte(fromEnv)); err != nil {
			return nil, fmt.Errorf("TIDAL_API_KEY: %w", err)
		}
	}
	if path == "" {
		return k, nil
	}
	b, err := readSecret(path, maxKeyFileBytes)
	if err != nil {
		return nil, err
	}
	before, n := len(k.sums), 0
	for line := range bytes.Lines(b) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := k.add(line); err != nil {
			return nil, &FileError{Path: path, Detail: fmt.Sprintf("line %d: %v", n, err)}
		}
	}
	if len(k.sums) == before {
		return nil, &FileError{Path: path, Detail: "holds no key: want one a line"}
	}
	return k, nil
}

func (k *Keys) add(key []byte) error {
	if len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return fmt.Errorf("a key of %d bytes, want %d to %d", len(key), minKeyBytes, maxKeyBytes)
	}
	for _, c := range key {
		if c <= ' ' || c > '~' {
			return errors.New("a key has a character that no header carries: want letters, digits and punctuation")
		}
	}
	k.sums = append(k.sums, sha256.Sum256(key))
	return nil
}

// Allows reports whether key is one of k. It looks at all of them, always.
func (k *Keys) Allows(key string) bool {
	sum := sha256.Sum256([]byte(key))
	found := 0
	for i := range k.sums {
		found |= subtle.ConstantTimeCompare(sum[:], k.sums[i][:])
	}
	return found == 1
}

// String says how many there are.
func (k *Keys) String() string { return fmt.Sprintf("%d keys", len(k.sums)) }

// GoString keeps the sums out of %#v too.
func (k *Keys) GoString() string { return k.String() }

// readSecret reads a file of up to maxBytes that others cannot read. The owner's group may: that is
// how Kubernetes hands a secret to a process that is not root.
func readSecret(path string, maxBytes int64) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &FileError{Path: path, Detail: "open", Err: cause(err)}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, &FileError{Path: path, Detail: "stat", Err: cause(err)}
	}
	if !info.Mode().IsRegular() {
		return nil, &FileError{Path: path, Detail: "is no regular file"}
	}
	if perm := info.Mode().Perm(); perm&0o037 != 0 {
		return nil, &FileError{Path: path, Detail: fmt.Sprintf("has mode %04o: others must not read it, nor its group write it; chmod 600 %s", perm, path)}
	}
	if info.Size() > maxBytes {
		return nil, &FileError{Path: path, Detail: fmt.Sprintf("%d bytes, want up to %d", info.Size(), maxBytes)}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, &FileError{Path: path, Detail: "read", Err: cause(err)}
	}
	return b, nil
}

// cause leaves out the path, which a FileError names already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
