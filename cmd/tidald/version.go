package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/daemon/api"
)

func newVersion() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := api.VersionInfo{Version: version, Commit: commit(), Go: runtime.Version()}
			switch output {
			case "text":
				_, err := fmt.Printf("tidald %s (%s, %s)\n", v.Version, v.Commit, v.Go)
				return err
			case "json":
				return json.NewEncoder(os.Stdout).Encode(v)
			}
			return usage(fmt.Errorf("-o %s: want text or json", output))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

// commit is the revision that the binary was built from, where the toolchain recorded it.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
