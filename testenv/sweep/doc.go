// Package sweep proves the disk: it takes the power away, or fails a call, at every place where a
// member touches its disk, and looks at what is there afterwards.
//
// The code under it is the code that runs: daemon/member with its birth and its boot, datadir, wal,
// state, apply, replica, consensus, on testenv/simfs in the place of the disk. A crash sweep runs a
// script once for every call that changes the disk, stops the power at that call, draws every class
// of what may be left, and boots each image twice, then once more after a crash of the boot itself.
// An error sweep fails each of those calls once in every way a disk fails, and lets the process live.
//
// What it holds: nothing acknowledged is lost (I3, I5, I6), nothing leaves before it is durable (I4),
// applied index and effects are one (I7), after an error of a write path nothing more is acknowledged
// (I8), identity and votes are never forgotten (I1, I12). It prints what it did, "N of N".
//
// `go test` takes a part of the images, spread evenly; `go test -tags soak` takes all of them.
package sweep
