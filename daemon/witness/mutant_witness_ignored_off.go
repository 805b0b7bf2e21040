//go:build !mutant_witness_ignored

package witness

const mutantWitnessIgnored = false // a known bug, for testenv/mutants
