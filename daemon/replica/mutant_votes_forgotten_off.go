//go:build !mutant_votes_forgotten

package replica

const mutantVotesForgotten = false // a known bug, for testenv/mutants
