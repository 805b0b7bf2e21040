//go:build !mutant_delete_keeps_totals

package apply

const mutantDeleteKeepsTotals = false // a known bug, for testenv/mutants
