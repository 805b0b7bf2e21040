//go:build !mutant_ack_before_sync

package wal

const mutantAckBeforeSync = false // a known bug, for testenv/mutants
