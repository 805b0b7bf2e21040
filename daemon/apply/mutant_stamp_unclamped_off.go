//go:build !mutant_stamp_unclamped

package apply

const mutantStampUnclamped = false // a known bug, for testenv/mutants
