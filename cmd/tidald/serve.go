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
	"github.com/tidaldb/tidal/daemon/reach"
)

// stopWithin bounds a stop: requests that run on are cut short then.
const stopWithin = 8 * time.Second

func newServe() *cobra.Command {
	var flags config.Flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one member",
		Long: `Run one member of the cluster that the topology file declares; without a file, a cluster of one on loopback.

A member that the file does not declare joins a cluster that runs: it asks a seed, any member, to be
admitted, installs the data and becomes a voter by itself once it has caught up. It takes keys, timings
and TLS from the file and ignores the members that it lists. It says where the others reach it with
--advertise-grpc and --advertise-http, at later starts too, which need no seed. What it waits for is in
the log and in GET /readyz.

It listens where it advertises: at an IP itself, at a host name on all interfaces; --grpc and --http say
otherwise.

Every flag has a twin in the environment; a flag goes before it, and it goes before the file.

Exit code 78: something has to be set right first, the configuration, an address, a key or the data
directory. 1: it failed, or another process has the port or the directory.`,
		Example: `  tidald serve                                                   # alone, on 127.0.0.1:9501
  tidald serve --config tidal.yaml --name us-east --data-dir /var/lib/tidal
  tidald serve --config tidal.yaml --name eu-west --data-dir /var/lib/tidal --seed http://10.0.0.1:9501 \
    --advertise-grpc 10.0.0.4:9601 --advertise-http 10.0.0.4:9501`,
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
	f.StringArrayVar(&flags.Seeds, "seed", nil, "`URL` of any member of the cluster to join; may be repeated (TIDAL_SEED, separated by commas)")
	f.StringVar(&flags.AdvertiseGRPC, "advertise-grpc", "", "`HOST:PORT` where other members reach this one (TIDAL_ADVERTISE_GRPC)")
	f.StringVar(&flags.AdvertiseHTTP, "advertise-http", "", "`HOST:PORT` where it is reached for HTTP (TIDAL_ADVERTISE_HTTP)")
	f.BoolVar(&flags.AwaitJoin, "await-join", false, "only listen until \"tidalctl join\" names a seed (TIDAL_AWAIT_JOIN)")
	f.BoolVar(&flags.Rejoin, "rejoin", false, "join although a member of this name was removed (TIDAL_REJOIN)")
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

// withCode tells refusals of what is on the disk, of addresses and of files with secrets, which an operator
// must settle, from other failures: a port or a directory that another process has is free when that one ends.
func withCode(err error) error {
	_, foreign := errors.AsType[*datadir.ForeignError](err)
	_, named := errors.AsType[*datadir.WrongNameError](err)
	_, copied := errors.AsType[*datadir.CopiedError](err)
	_, corrupt := errors.AsType[*durable.CorruptError](err)
	_, newer := errors.AsType[*durable.VersionError](err)
	_, lost := errors.AsType[*datadir.LostGroupError](err)
	_, secret := errors.AsType[*auth.FileError](err)
	_, nothing := errors.AsType[*daemon.NothingToJoinError](err)
	listen, ok := errors.AsType[*reach.ListenError](err)
	address := ok && !listen.Taken()
	if address || nothing || foreign || named || copied || corrupt || newer || lost || secret {
		return &exitError{exitConfig, err}
	}
	return err
}
