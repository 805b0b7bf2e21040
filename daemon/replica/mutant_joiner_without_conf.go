//go:build mutant_joiner_without_conf

package replica

// mutantJoinerWithoutConf: a member opens without a configuration until it is in one.
const mutantJoinerWithoutConf = true
