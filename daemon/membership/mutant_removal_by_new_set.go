//go:build mutant_removal_by_new_set

package membership

// mutantRemovalByNewSet: a change of voters is judged by the new set alone.
const mutantRemovalByNewSet = true
