//go:build mutant_append_error_ignored

package replica

// mutantAppendErrorIgnored: a frame that could not be written is reported durable.
const mutantAppendErrorIgnored = true
