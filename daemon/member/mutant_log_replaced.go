//go:build mutant_log_replaced

package member

// mutantLogReplaced: an install replaces the log too, whatever it holds.
const mutantLogReplaced = true
