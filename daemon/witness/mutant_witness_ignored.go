//go:build mutant_witness_ignored

package witness

// mutantWitnessIgnored: a member whose disk went back is taken as if it had not.
const mutantWitnessIgnored = true
