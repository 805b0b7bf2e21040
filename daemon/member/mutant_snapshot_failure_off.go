//go:build !mutant_snapshot_failure

package member

const mutantSnapshotFailure = false // a known bug, for testenv/mutants
