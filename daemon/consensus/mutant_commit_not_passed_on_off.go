//go:build !mutant_commit_not_passed_on

package consensus

const mutantCommitNotPassedOn = false // a known bug, for testenv/mutants
