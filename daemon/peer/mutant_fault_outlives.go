//go:build mutant_fault_outlives

package peer

// mutantFaultOutlives: a fault goes on when its time is up.
const mutantFaultOutlives = true
