//go:build !mutant_record_keys_forgotten

package apply

const mutantRecordKeysForgotten = false // a known bug, for testenv/mutants
