// Package testenv holds what proves Tidal: nothing of it is linked into a binary.
//
//   - lint: the rules of the house that a compiler does not check
//   - sim: a deterministic cluster on one thread, replayed by its seed
//   - simfs: a disk that loses power, fails and rots on purpose
//   - sweep: a crash and an error at every place where a member touches its disk
//   - mutants: known bugs, built in one at a time, that the tests must find
//   - cluster: clusters of real processes, killed, paused, short of disk
//   - audit: what the disks of a stopped cluster say about what its clients were told
//
// `go test ./...` runs all of it in a few minutes without root and without a network beyond loopback.
//
// Behind the build tag soak are longer runs of cluster, each ended by an audit: leaders killed, everybody
// killed, leaders paused for ten seconds, again and again (2 minutes); a full disk, on the leader and on a
// member alone, which mount a tmpfs (root); a slow disk, which needs root and strace; members that join
// (one becomes three, three become five, five at once, killed at every point, by host names, in a network
// namespace that comes back under another address) and that are removed (the leader too, while down, and
// added again in every way); an upgrade, member by member, to a later release, and back by mistake. What
// cannot run says so and why:
//
//	go test -tags soak -run Soak -v -timeout 10m ./testenv/cluster
//
// The simulator plays a few seeds in every run. A soak plays fresh ones on every processor and fails
// below its floors (seeds, simulated hours, faults, markers); one seed is played again by its number:
//
//	go test ./testenv/sim -run Sim_Soak -soak 5m -timeout 10m
//	go test ./testenv/sim -run Sim_Repeats -repeat 64 -timeout 10m
//	go test ./testenv/sim -run Sim_Seeds -seed N
package testenv
