//go:build mutant_silent_caught_up

package ops

// mutantSilentCaughtUp: a member that does not answer is shown without a lag.
const mutantSilentCaughtUp = true
