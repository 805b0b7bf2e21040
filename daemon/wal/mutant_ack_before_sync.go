//go:build mutant_ack_before_sync

package wal

// mutantAckBeforeSync: a frame is acknowledged when it is written.
const mutantAckBeforeSync = true
