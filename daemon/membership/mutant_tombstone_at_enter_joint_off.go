//go:build !mutant_tombstone_at_enter_joint

package membership

const mutantTombstoneAtEnterJoint = false // a known bug, for testenv/mutants
