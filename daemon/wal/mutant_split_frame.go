//go:build mutant_split_frame

package wal

// mutantSplitFrame: entries reach the disk in a frame of their own, ahead of the commit that came with them.
const mutantSplitFrame = true
