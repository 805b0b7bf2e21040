//go:build !mutant_pairs_only

package state

const mutantPairsOnly = false // a known bug, for testenv/mutants
