//go:build !mutant_log_replaced

package member

const mutantLogReplaced = false // a known bug, for testenv/mutants
