//go:build !mutant_fsync_retried

package wal

const mutantFsyncRetried = false // a known bug, for testenv/mutants
