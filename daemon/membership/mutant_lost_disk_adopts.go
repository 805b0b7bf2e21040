//go:build mutant_lost_disk_adopts

package membership

// mutantLostDiskAdopts: a member with a lost disk takes its old place.
const mutantLostDiskAdopts = true
