//go:build mutant_stored_digest_trusted

package member

// mutantStoredDigestTrusted: an installed state is taken at the word of the digest that came with it.
const mutantStoredDigestTrusted = true
