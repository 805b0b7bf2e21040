//go:build !mutant_suffix_kept

package wal

const mutantSuffixKept = false // a known bug, for testenv/mutants
