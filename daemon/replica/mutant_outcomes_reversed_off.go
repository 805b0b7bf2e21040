//go:build !mutant_outcomes_reversed

package replica

const mutantOutcomesReversed = false // a known bug, for testenv/mutants
