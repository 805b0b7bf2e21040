//go:build !mutant_settle_by_index

package consensus

const mutantSettleByIndex = false // a known bug, for testenv/mutants
