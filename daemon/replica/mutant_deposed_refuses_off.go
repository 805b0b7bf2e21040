//go:build !mutant_deposed_refuses

package replica

const mutantDeposedRefuses = false // a known bug, for testenv/mutants
