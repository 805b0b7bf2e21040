//go:build mutant_fuse_silent

package state

// mutantFuseSilent: the store forgets a sync that failed.
const mutantFuseSilent = true
