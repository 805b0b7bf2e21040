//go:build mutant_settle_by_index

package consensus

// mutantSettleByIndex: a write is done when any entry is applied at its index.
const mutantSettleByIndex = true
