//go:build mutant_two_recycles

package member

// mutantTwoRecycles: a leader lets a second voter close its replica while the first one's is closed.
const mutantTwoRecycles = true
