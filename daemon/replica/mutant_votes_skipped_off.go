//go:build !mutant_votes_skipped

package replica

const mutantVotesSkipped = false // a known bug, for testenv/mutants
