package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/daemon/dev"
)

func newDev() *cobra.Command {
	o := dev.Options{Out: os.Stdout, Err: os.Stderr}
	restart, output := "on", "text"
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster of real processes on this machine, with sample data",
		Example: `  tidald dev                                # three members, 3,200 films
  tidald dev --nodes 5 --dir ./data         # kept, and taken up again
  tidald dev --empty -o json --for 10m      # for scripts`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch restart {
			case "on":
				o.Restart = true
			case "off":
			default:
				return usage(fmt.Errorf("--restart=%s: want on or off", restart))
			}
			switch output {
			case "text":
			case "json":
				o.JSON = true
			default:
				return usage(fmt.Errorf("-o %s: want text or json", output))
			}
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			o.Exe = exe
			err = dev.Run(cmd.Context(), o)
			if _, ok := errors.AsType[*dev.UsageError](err); ok {
				return usage(err)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 3, "members, 1 to 7")
	f.IntVar(&o.HTTPBase, "http-base", 9500, "member i serves HTTP on this port + i")
	f.IntVar(&o.GRPCBase, "grpc-base", 9600, "member i serves its peers on this port + i")
	f.StringVar(&o.Dir, "dir", "", "where the data is kept and taken up again (default: a temporary directory, removed at the end)")
	f.BoolVar(&o.Empty, "empty", false, "load no sample data")
	f.DurationVar(&o.For, "for", 0, "stop after this long (default: at Ctrl-C)")
	f.StringArrayVar(&o.Set, "set", nil, "a setting of the configuration file, as block.key=value; may be repeated")
	f.StringVar(&restart, "restart", restart, "on: start a member that died again after 2s; off: leave it")
	f.StringVarP(&output, "output", "o", output, "text, or json: one line on stdout once all are ready")
	return cmd
}
