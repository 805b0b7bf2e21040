//go:build !mutant_delivered_ignored

package apply

const mutantDeliveredIgnored = false // a known bug, for testenv/mutants
