//go:build mutant_torn_refused

package wal

// mutantTornRefused: a torn tail is corruption.
const mutantTornRefused = true
