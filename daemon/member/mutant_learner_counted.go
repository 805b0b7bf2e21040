//go:build mutant_learner_counted

package member

// mutantLearnerCounted: the digest of a learner counts as that of a voter.
const mutantLearnerCounted = true
