//go:build mutant_stamp_unclamped

package apply

// mutantStampUnclamped: a member whose clock was ahead has the last word for as long as it was.
const mutantStampUnclamped = true
