package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What an operator does by mistake is refused in words that name the mistake, with an exit code of
// its class.
func TestServe_RefusesMistakes(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Nodes: 1})
	m := c.Members[0]
	config := c.Dir + "/tidal.yaml"
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(c.Dir, name)
		if err := os.WriteFile(path, []byte("members: [{name: a, http_addr: \"127.0.0.1:1\", grpc_addr: \"127.0.0.1:2\"}]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	noKeys, halfTLS := write("nokeys.yaml", "auth: {key_file: none.keys}\n"), write("halftls.yaml", "tls: {cert_file: c.pem}\n")
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"a second process", []string{"serve", "--config", config, "--name", m.Name, "--data-dir", m.Dir, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, 1, fmt.Sprint(c.pid(m.Name), ": stop that one first")},
		{"a port that is taken", []string{"serve", "--config", config, "--name", m.Name, "--data-dir", t.TempDir()}, 1, fmt.Sprintf("(--http, TIDAL_HTTP, http_bind, http_addr): process %d (tidald) listens there: end it, or listen elsewhere", c.pid(m.Name))},
		{"an address of no machine", []string{"serve", "--data-dir", t.TempDir(), "--grpc", "192.0.2.1:9600", "--http", "127.0.0.1:0"}, 78, "192.0.2.1:9600"},
		{"a directory of somebody else", []string{"serve", "--data-dir", c.Dir, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, 78, "(--data-dir, TIDAL_DATA_DIR): foreign_data_dir: " + c.Dir + " holds "},
		{"a name nobody has", []string{"serve", "--config", config, "--name", "us-eats"}, 78, "us-east"},
		{"keys that are not there", []string{"serve", "--config", noKeys, "--data-dir", t.TempDir()}, 78, "none.keys"},
		{"half a certificate", []string{"serve", "--config", halfTLS, "--data-dir", t.TempDir()}, 78, "tls.key_file"},
		{"a file that is not there", []string{"serve", "--config", c.Dir + "/no.yaml"}, 78, "no.yaml"},
		{"a flag that is none", []string{"serve", "--confg", config}, 64, "confg"},
		{"a command that is none", []string{"sreve"}, 64, "sreve"},
		{"a sub-command that is none", []string{"config", "chekc"}, 64, "chekc"},
		{"more members than there are names", []string{"dev", "--nodes", "9"}, 64, "1 to 7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := exec.Command(binary, tc.args...).CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			if code != tc.code || !strings.Contains(string(out), tc.says) || strings.Contains(string(out), "goroutine") {
				t.Errorf("tidald %v = %d %q, want %d and %q", tc.args, code, out, tc.code, tc.says)
			}
		})
	}
}
