//go:build !mutant_no_dir_sync

package durable

const mutantNoDirSync = false // a known bug, for testenv/mutants
