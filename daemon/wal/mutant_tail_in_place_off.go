//go:build !mutant_tail_in_place

package wal

const mutantTailInPlace = false // a known bug, for testenv/mutants
