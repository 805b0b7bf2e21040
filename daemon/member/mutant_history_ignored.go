//go:build mutant_history_ignored

package member

// mutantHistoryIgnored: a disk of a life of the cluster that is over is heard.
const mutantHistoryIgnored = true
