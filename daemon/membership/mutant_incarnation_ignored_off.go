//go:build !mutant_incarnation_ignored

package membership

const mutantIncarnationIgnored = false // a known bug, for testenv/mutants
