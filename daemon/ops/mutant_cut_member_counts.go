//go:build mutant_cut_member_counts

package ops

// mutantCutMemberCounts: a voter that a fault keeps from the others counts for the quorum.
const mutantCutMemberCounts = true
