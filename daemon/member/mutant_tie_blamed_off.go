//go:build !mutant_tie_blamed

package member

const mutantTieBlamed = false // a known bug, for testenv/mutants
