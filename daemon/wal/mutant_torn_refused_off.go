//go:build !mutant_torn_refused

package wal

const mutantTornRefused = false // a known bug, for testenv/mutants
