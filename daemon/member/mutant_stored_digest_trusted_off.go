//go:build !mutant_stored_digest_trusted

package member

const mutantStoredDigestTrusted = false // a known bug, for testenv/mutants
