//go:build mutant_applied_own_batch

package state

// mutantAppliedOwnBatch: the position has a batch of its own, after the effects.
const mutantAppliedOwnBatch = true
