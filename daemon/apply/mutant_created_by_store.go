//go:build mutant_created_by_store

package apply

// mutantCreatedByStore: whether an item is new is asked of the store, not of the run.
const mutantCreatedByStore = true
