package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/daemon/config"
)

func newConfig() *cobra.Command {
	parent := group("config", "Look at a topology file")
	parent.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Say whether every member of a topology file could start with it",
		Args:  func(cmd *cobra.Command, args []string) error { return usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := checkFile(args[0])
			if err != nil {
				return &exitError{exitConfig, err}
			}
			_, err = fmt.Printf("%s: ok, %d members\n", args[0], n)
			return err
		},
	})
	return parent
}

// checkFile reads the file once as each of its members.
func checkFile(path string) (members int, err error) {
	none := func(string) string { return "" }
	names, err := config.Names(path)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if _, err := config.Load(config.Flags{Config: path, Name: name}, none); err != nil {
			return 0, err
		}
	}
	return len(names), nil
}
