//go:build !mutant_id_reused

package membership

const mutantIDReused = false // a known bug, for testenv/mutants
