//go:build !mutant_answer_before_settled

package membership

const mutantAnswerBeforeSettled = false // a known bug, for testenv/mutants
