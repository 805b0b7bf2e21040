package sim

import "time"

// Shrink leaves out faults of a seed that fails for as long as it still fails, until the deadline, and
// returns the result of the run with the fewest. run plays the seed; what it draws must repeat.
func Shrink(failed Result, run func(Options) Result, deadline time.Time) Result {
	best, skip := failed, map[int]bool{}
	total := len(failed.FaultList) + 1
	for size := total / 2; size > 0; size /= 2 {
		for from := 1; from <= total+size; from += size {
			if time.Now().After(deadline) {
				return best
			}
			try := map[int]bool{}
			for n := range skip {
				try[n] = true
			}
			for n := from; n < from+size; n++ {
				try[n] = true
			}
			if len(try) == len(skip) {
				continue
			}
			if r := run(Options{Skip: try}); r.Err != nil && len(r.FaultList) < len(best.FaultList) {
				best, skip = r, try
			}
		}
	}
	return best
}
