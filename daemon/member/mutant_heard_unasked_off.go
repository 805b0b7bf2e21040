//go:build !mutant_heard_unasked

package member

const mutantHeardUnasked = false // a known bug, for testenv/mutants
