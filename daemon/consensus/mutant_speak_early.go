//go:build mutant_speak_early

package consensus

// mutantSpeakEarly: a vote and an append response leave before their frame is durable.
const mutantSpeakEarly = true
