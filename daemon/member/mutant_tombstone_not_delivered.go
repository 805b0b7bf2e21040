//go:build mutant_tombstone_not_delivered

package member

// mutantTombstoneNotDelivered: a member that is removed is never told so.
const mutantTombstoneNotDelivered = true
