//go:build mutant_answer_before_settled

package membership

// mutantAnswerBeforeSettled: a change counts as settled when the leader has applied it.
const mutantAnswerBeforeSettled = true
