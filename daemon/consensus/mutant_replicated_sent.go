//go:build mutant_replicated_sent

package consensus

// mutantReplicatedSent: a write counts as replicated when it was sent.
const mutantReplicatedSent = true
