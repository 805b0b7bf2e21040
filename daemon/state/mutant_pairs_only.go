//go:build mutant_pairs_only

package state

// mutantPairsOnly: of a table nothing is read but what pairs are in.
const mutantPairsOnly = true
