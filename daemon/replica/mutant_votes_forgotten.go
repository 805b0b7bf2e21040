//go:build mutant_votes_forgotten

package replica

// mutantVotesForgotten: a replica opens with the vote of its log, which may be older than its votes.
const mutantVotesForgotten = true
