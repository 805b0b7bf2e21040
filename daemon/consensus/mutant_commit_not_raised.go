//go:build mutant_commit_not_raised

package consensus

// mutantCommitNotRaised: raft is opened with the log's commit, though state is ahead of it.
const mutantCommitNotRaised = true
