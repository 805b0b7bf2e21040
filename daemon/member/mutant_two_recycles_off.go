//go:build !mutant_two_recycles

package member

const mutantTwoRecycles = false // a known bug, for testenv/mutants
