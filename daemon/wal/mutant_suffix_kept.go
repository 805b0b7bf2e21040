//go:build mutant_suffix_kept

package wal

// mutantSuffixKept: what a new frame overwrites stays behind it.
const mutantSuffixKept = true
