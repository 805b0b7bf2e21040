//go:build mutant_read_at_once

package consensus

// mutantReadAtOnce: a leader answers a read without asking anybody whether it leads yet.
const mutantReadAtOnce = true
