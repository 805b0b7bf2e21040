//go:build !mutant_cut_member_counts

package ops

const mutantCutMemberCounts = false // a known bug, for testenv/mutants
