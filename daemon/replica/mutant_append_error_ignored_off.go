//go:build !mutant_append_error_ignored

package replica

const mutantAppendErrorIgnored = false // a known bug, for testenv/mutants
