// Command gen writes the completion scripts into the directory that it runs in.
package main

import (
	"fmt"
	"os"

	"github.com/tidaldb/tidal/completions"
	"github.com/tidaldb/tidal/ctl/verbs"
)

func main() {
	for _, shell := range verbs.Shells() {
		script, err := completions.Script(shell)
		if err == nil {
			err = os.WriteFile(completions.File(shell), script, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
