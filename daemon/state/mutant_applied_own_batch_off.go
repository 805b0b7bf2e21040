//go:build !mutant_applied_own_batch

package state

const mutantAppliedOwnBatch = false // a known bug, for testenv/mutants
