//go:build !mutant_local_clock

package apply

func mutantLocalClock(stamp int64) int64 { return stamp }
