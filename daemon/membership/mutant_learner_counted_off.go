//go:build !mutant_learner_counted

package membership

const mutantLearnerCounted = false // a known bug, for testenv/mutants
