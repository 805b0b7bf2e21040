//go:build mutant_delete_keeps_totals

package apply

// mutantDeleteKeepsTotals: an item that is deleted and made again has the totals that it had.
const mutantDeleteKeepsTotals = true
