//go:build !mutant_copy_accepted

package datadir

const mutantCopyAccepted = false // a known bug, for testenv/mutants
