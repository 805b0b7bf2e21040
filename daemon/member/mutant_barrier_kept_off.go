//go:build !mutant_barrier_kept

package member

const mutantBarrierKept = false // a known bug, for testenv/mutants
