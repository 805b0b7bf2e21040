//go:build mutant_fsync_retried

package wal

// mutantFsyncRetried: a failed sync is tried again.
const mutantFsyncRetried = true
