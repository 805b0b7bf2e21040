//go:build !mutant_hash_ignored

package apply

const mutantHashIgnored = false // a known bug, for testenv/mutants
