//go:build !mutant_joiner_without_conf

package replica

const mutantJoinerWithoutConf = false // a known bug, for testenv/mutants
