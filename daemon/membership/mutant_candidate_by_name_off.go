//go:build !mutant_candidate_by_name

package membership

const mutantCandidateByName = false // a known bug, for testenv/mutants
