//go:build !mutant_pin_off_by_one

package snapshot

const mutantPinOffByOne = false // a known bug, for testenv/mutants
