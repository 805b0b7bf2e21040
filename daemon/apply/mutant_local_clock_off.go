//go:build !mutant_local_clock

package apply

const mutantLocalClock = false // a known bug, for testenv/mutants
