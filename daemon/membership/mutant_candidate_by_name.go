//go:build mutant_candidate_by_name

package membership

// mutantCandidateByName: a candidate is known by its name alone.
const mutantCandidateByName = true
