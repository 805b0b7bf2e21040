//go:build mutant_learner_counted

package membership

// mutantLearnerCounted: a learner counts in a majority.
const mutantLearnerCounted = true
