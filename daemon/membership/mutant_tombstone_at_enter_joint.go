//go:build mutant_tombstone_at_enter_joint

package membership

// mutantTombstoneAtEnterJoint: a member is removed when the joint change is entered, while its vote still counts.
const mutantTombstoneAtEnterJoint = true
