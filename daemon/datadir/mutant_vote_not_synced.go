//go:build mutant_vote_not_synced

package datadir

// mutantVoteNotSynced: a vote is given when it is written.
const mutantVoteNotSynced = true
