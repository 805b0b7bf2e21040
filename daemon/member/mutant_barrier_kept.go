//go:build mutant_barrier_kept

package member

// mutantBarrierKept: a barrier goes on to hold when the replica was opened in between.
const mutantBarrierKept = true
