//go:build mutant_id_reused

package membership

// mutantIDReused: the id of the last member is given again once that is removed.
const mutantIDReused = true
