//go:build !mutant_speak_early

package consensus

const mutantSpeakEarly = false // a known bug, for testenv/mutants
