//go:build !mutant_removal_by_new_set

package membership

const mutantRemovalByNewSet = false // a known bug, for testenv/mutants
