//go:build mutant_leader_acks_early

package consensus

// mutantLeaderAcksEarly: a write for the leader alone is acknowledged before it is durable.
const mutantLeaderAcksEarly = true
