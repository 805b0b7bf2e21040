//go:build mutant_outcomes_reversed

package replica

// mutantOutcomesReversed: the writes of an entry get the outcomes of each other.
const mutantOutcomesReversed = true
