package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/daemon"
	"github.com/tidaldb/tidal/daemon/auth"
	"github.com/tidaldb/tidal/daemon/config"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable"
)

// stopWithin bounds a stop: requests that run on are cut short then.
const stopWithin = 8 * time.Second

func newServe() *cobra.Command {
	var flags config.Flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one member",
		Long: `Run one member of the cluster that the topology file declares; without a file, a cluster of one on loopback.

Every flag has a twin in the environment; a flag goes before it, and it goes before the file.`,
		Example: `  tidald serve                                                   # alone, on 127.0.0.1:9501
  tidald serve --config tidal.yaml --name us-east --data-dir /var/lib/tidal`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.Config, "config", "", "topology file (TIDAL_CONFIG)")
	f.StringVar(&flags.Name, "name", "", "which of its members this is (TIDAL_NAME, TIDAL_REGION)")
	f.StringVar(&flags.DataDir, "data-dir", "", "where its data is (TIDAL_DATA_DIR; default tidal-data)")
	f.StringVar(&flags.HTTP, "http", "", "listen here for HTTP (TIDAL_HTTP)")
	f.StringVar(&flags.GRPC, "grpc", "", "listen here for other members (TIDAL_GRPC)")
	f.StringVar(&flags.Metrics, "metrics", "", "listen here for GET /metrics (TIDAL_METRICS)")
	return cmd
}

func serve(ctx context.Context, flags config.Flags) error {
	c, err := config.Load(flags, os.Getenv)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	d, err := daemon.New(daemon.Options{Config: c, Version: version, Logger: log})
	if err != nil {
		return withCode(err)
	}
	err = d.Start()
	if err == nil {
		select {
		case err = <-d.Failed():
		case <-ctx.Done():
		}
	}
	stopCtx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return errors.Join(err, d.Stop(stopCtx))
}

// withCode tells refusals of what is on the disk and of files with secrets, which an operator must settle,
// from other failures.
func withCode(err error) error {
	_, named := errors.AsType[*datadir.WrongNameError](err)
	_, copied := errors.AsType[*datadir.CopiedError](err)
	_, corrupt := errors.AsType[*durable.CorruptError](err)
	_, newer := errors.AsType[*durable.VersionError](err)
	_, lost := errors.AsType[*datadir.LostGroupError](err)
	_, secret := errors.AsType[*auth.FileError](err)
	if named || copied || corrupt || newer || lost || secret {
		return &exitError{exitConfig, err}
	}
	return err
}
