//go:build !mutant_close_refuses

package replica

const mutantCloseRefuses = false // a known bug, for testenv/mutants
