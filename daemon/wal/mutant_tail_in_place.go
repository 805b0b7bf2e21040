//go:build mutant_tail_in_place

package wal

// mutantTailInPlace: a log that opens trusts what the page cache says of its tail.
const mutantTailInPlace = true
