// Package completions holds the completion scripts of tidalctl for bash, zsh, fish and PowerShell, as
// releases ship them. They are made from the tree of commands by go generate; a test keeps them
// current and has each shell that is installed read its script.
//
// Callers: packagers take the files; completions/gen writes them.
package completions

import (
	"bytes"
	"fmt"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
)

//go:generate go run ./gen

// File returns the name of a shell's script in this directory, as the shell wants it.
func File(shell string) string {
	switch shell {
	case "zsh":
		return "_tidalctl"
	case "powershell":
		return "tidalctl.ps1"
	}
	return "tidalctl." + shell
}

// Script makes the script of one of verbs.Shells.
func Script(shell string) ([]byte, error) {
	io, _, _ := iostreams.Test()
	root := ctl.NewRoot(&ctl.Factory{IO: io, Env: func(string) string { return "" }}, verbs.All)
	var b bytes.Buffer
	if err := verbs.WriteCompletion(root, shell, &b); err != nil {
		return nil, fmt.Errorf("completion for %s: %w", shell, err)
	}
	return b.Bytes(), nil
}
