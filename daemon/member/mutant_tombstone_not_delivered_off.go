//go:build !mutant_tombstone_not_delivered

package member

const mutantTombstoneNotDelivered = false // a known bug, for testenv/mutants
