//go:build !mutant_created_by_store

package apply

const mutantCreatedByStore = false // a known bug, for testenv/mutants
