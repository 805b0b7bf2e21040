//go:build !mutant_read_at_once

package consensus

const mutantReadAtOnce = false // a known bug, for testenv/mutants
