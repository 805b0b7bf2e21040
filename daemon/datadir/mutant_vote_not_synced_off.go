//go:build !mutant_vote_not_synced

package datadir

const mutantVoteNotSynced = false // a known bug, for testenv/mutants
