//go:build mutant_heard_unasked

package member

// mutantHeardUnasked: a disk that went back hears of a later term before those who remember have seen what it holds.
const mutantHeardUnasked = true
