// Package dev runs a whole cluster on this machine: `tidald dev`.
//
// Every member is a real child process of the same binary on a loopback address, with its own data
// directory, so that killing one is killing one. The package writes the configuration, starts the
// children, waits until all are ready, loads the sample films, starts a child that died again, and
// ends everything it started before Run returns.
//
// Callers: cmd/tidald. Tests and drills start local clusters through the command, never through this
// package, so that there is one way to have one.
package dev
