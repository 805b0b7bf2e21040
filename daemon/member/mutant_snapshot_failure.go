//go:build mutant_snapshot_failure

package member

// mutantSnapshotFailure: raft is told that an artifact failed when its consumer was opened.
const mutantSnapshotFailure = true
