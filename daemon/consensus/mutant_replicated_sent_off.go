//go:build !mutant_replicated_sent

package consensus

const mutantReplicatedSent = false // a known bug, for testenv/mutants
