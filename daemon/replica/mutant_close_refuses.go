//go:build mutant_close_refuses

package replica

// mutantCloseRefuses: a replica that closes tells whoever waits that nothing happened.
const mutantCloseRefuses = true
