//go:build !mutant_two_sessions

package peer

const mutantTwoSessions = false // a known bug, for testenv/mutants
