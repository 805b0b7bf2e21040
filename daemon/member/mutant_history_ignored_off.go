//go:build !mutant_history_ignored

package member

const mutantHistoryIgnored = false // a known bug, for testenv/mutants
