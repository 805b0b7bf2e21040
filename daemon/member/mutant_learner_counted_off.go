//go:build !mutant_learner_counted

package member

const mutantLearnerCounted = false // a known bug, for testenv/mutants
