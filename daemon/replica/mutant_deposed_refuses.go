//go:build mutant_deposed_refuses

package replica

// mutantDeposedRefuses: a leader that is deposed tells its clients that nothing happened.
const mutantDeposedRefuses = true
