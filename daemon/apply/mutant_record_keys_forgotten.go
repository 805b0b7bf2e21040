//go:build mutant_record_keys_forgotten

package apply

// mutantRecordKeysForgotten: the key of a record is looked up and not kept.
const mutantRecordKeysForgotten = true
