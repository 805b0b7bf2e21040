//go:build !mutant_fuse_silent

package state

const mutantFuseSilent = false // a known bug, for testenv/mutants
