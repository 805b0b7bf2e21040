//go:build !mutant_leader_acks_early

package consensus

const mutantLeaderAcksEarly = false // a known bug, for testenv/mutants
