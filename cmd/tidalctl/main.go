// Command tidalctl operates a Tidal cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

// version is set by the linker at a release.
var version = "dev"

func main() { os.Exit(run()) }

func run() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // a second one ends the process at once
		cancel(&ctl.InterruptedError{Signal: s})
	}()
	return ctl.Run(ctx, &ctl.Factory{IO: iostreams.System(), Env: os.Getenv, Build: build()}, verbs.All, os.Args[1:])
}

// build returns what the binary knows of its own making.
func build() api.VersionInfo {
	v := api.VersionInfo{Version: version, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
