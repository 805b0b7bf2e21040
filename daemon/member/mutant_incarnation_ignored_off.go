//go:build !mutant_incarnation_ignored

package member

const mutantIncarnationIgnored = false // a known bug, for testenv/mutants
