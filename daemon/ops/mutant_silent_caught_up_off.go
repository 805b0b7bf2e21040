//go:build !mutant_silent_caught_up

package ops

const mutantSilentCaughtUp = false // a known bug, for testenv/mutants
