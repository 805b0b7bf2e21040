// Package testenv holds what proves Tidal: nothing of it is linked into a binary.
//
//   - lint: the rules of the house that a compiler does not check
//   - sim: a deterministic cluster on one thread, replayed by its seed
//   - simfs: a disk that loses power, fails and rots on purpose
//   - sweep: a crash and an error at every place where a member touches its disk
//   - mutants: known bugs, built in one at a time, that the tests must find
//   - cluster: clusters of real processes, and the audit of what they acknowledged
//
// `go test ./...` runs all of it in a few minutes without root and without a network beyond loopback.
package testenv
