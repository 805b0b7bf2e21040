//go:build mutant_pin_off_by_one

package snapshot

// mutantPinOffByOne: the log is kept from the entry after the first one that a consumer needs.
const mutantPinOffByOne = true
