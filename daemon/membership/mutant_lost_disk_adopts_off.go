//go:build !mutant_lost_disk_adopts

package membership

const mutantLostDiskAdopts = false // a known bug, for testenv/mutants
