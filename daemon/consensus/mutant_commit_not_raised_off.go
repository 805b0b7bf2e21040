//go:build !mutant_commit_not_raised

package consensus

const mutantCommitNotRaised = false // a known bug, for testenv/mutants
