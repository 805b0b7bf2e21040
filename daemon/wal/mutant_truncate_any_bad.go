//go:build mutant_truncate_any_bad

package wal

// mutantTruncateAnyBad: a bad frame ends the log, whatever is behind it.
const mutantTruncateAnyBad = true
