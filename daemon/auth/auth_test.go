package auth

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPeerKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer.key")
	if err := MakePeerKey(path, rand.Reader); err != nil {
		t.Fatal(err)
	}
	key, err := ReadPeerKey(path)
	if err != nil || len(key) != PeerKeyBytes || bytes.Equal(key, make([]byte, PeerKeyBytes)) {
		t.Fatalf("read %x, %v", key, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if err := MakePeerKey(path, rand.Reader); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made over the old one: %v", err)
	}
	if again, err := ReadPeerKey(path); err != nil || !bytes.Equal(again, key) {
		t.Errorf("then it is %x, %v", again, err)
	}
	if token := PeerToken(key); len(token) != 2*PeerKeyBytes || strings.ContainsAny(token, "\r\n \x00") {
		t.Errorf("token %q", token)
	}
}

func TestReadSecret_Refuses(t *testing.T) {
	secret := strings.Repeat("s", PeerKeyBytes)
	for _, tc := range []struct {
		name, path, want string
	}{
		{"readable by others", write(t, 0o644, secret), "mode 0644"},
		{"writable by the group", write(t, 0o660, secret), "mode 0660"},
		{"too short", write(t, 0o600, secret[1:]), "31 bytes"},
		{"too long", write(t, 0o600, secret+"\n"), "33 bytes"},
		{"missing", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"a directory", t.TempDir(), "no regular file"},
	} {
		_, err := ReadPeerKey(tc.path)
		if e, ok := errors.AsType[*FileError](err); !ok || e.Path != tc.path || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "sss") {
			t.Errorf("%s: the secret is in %q", tc.name, err)
		}
	}
	for _, mode := range []os.FileMode{0o400, 0o600, 0o440, 0o640} {
		if _, err := ReadPeerKey(write(t, mode, secret)); err != nil {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

func TestKeys(t *testing.T) {
	path := write(t, 0o600, "# of the gateway\n\nfirst-key-of-the-file\n  second-key-of-file\n")
	k, err := LoadKeys(path, "key-of-the-environment")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"first-key-of-the-file": true, "second-key-of-file": true, "key-of-the-environment": true,
		"": false, "first-key-of-the-fil": false, "first-key-of-the-filf": false, "# of the gateway": false,
	} {
		if k.Allows(key) != want {
			t.Errorf("%q: allowed is %t", key, !want)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); s != "3 keys 3 keys 3 keys 3 keys" {
		t.Errorf("printed %q", s)
	}
	if k, err := LoadKeys("", ""); k != nil || err != nil {
		t.Errorf("no keys at all: %v, %v", k, err)
	}
	if (&Keys{}).Allows("") {
		t.Error("no keys allow the empty one")
	}
}

func TestLoadKeys_Refuses(t *testing.T) {
	for _, tc := range []struct{ text, env, want string }{
		{"# nothing\n", "", "holds no key"},
		{"long-enough-a-key\nshort\n", "", "line 2: a key of 5 bytes"},
		{"with a space within\n", "", "line 1: a key has a character"},
		{"", "short", "TIDAL_API_KEY: a key of 5 bytes"},
	} {
		path := ""
		if tc.text != "" {
			path = write(t, 0o600, tc.text)
		}
		if _, err := LoadKeys(path, tc.env); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q, %q: got %v, want %q", tc.text, tc.env, err, tc.want)
		}
	}
}
