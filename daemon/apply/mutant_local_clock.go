//go:build mutant_local_clock

package apply

// mutantLocalClock: a signal without a time gets that of the member which applies it.
const mutantLocalClock = true
