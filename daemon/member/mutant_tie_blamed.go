//go:build mutant_tie_blamed

package member

// mutantTieBlamed: where no digest has a majority, the one that most members report counts as right.
const mutantTieBlamed = true
