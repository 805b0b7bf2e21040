//go:build !mutant_truncate_any_bad

package wal

const mutantTruncateAnyBad = false // a known bug, for testenv/mutants
