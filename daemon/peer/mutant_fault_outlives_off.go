//go:build !mutant_fault_outlives

package peer

const mutantFaultOutlives = false // a known bug, for testenv/mutants
