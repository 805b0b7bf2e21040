//go:build mutant_commit_not_passed_on

package consensus

// mutantCommitNotPassedOn: only a leader is believed that an entry is committed.
const mutantCommitNotPassedOn = true
