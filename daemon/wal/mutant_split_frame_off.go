//go:build !mutant_split_frame

package wal

const mutantSplitFrame = false // a known bug, for testenv/mutants
