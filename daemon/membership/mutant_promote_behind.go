//go:build mutant_promote_behind

package membership

// mutantPromoteBehind: a learner is promoted however far it is behind.
const mutantPromoteBehind = true
