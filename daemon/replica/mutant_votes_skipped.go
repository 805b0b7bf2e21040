//go:build mutant_votes_skipped

package replica

// mutantVotesSkipped: a vote is kept in the log alone.
const mutantVotesSkipped = true
