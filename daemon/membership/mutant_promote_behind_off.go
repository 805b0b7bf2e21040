//go:build !mutant_promote_behind

package membership

const mutantPromoteBehind = false // a known bug, for testenv/mutants
