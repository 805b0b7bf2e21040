//go:build mutant_local_clock

package apply

import "time"

// mutantLocalClock: a signal without a time gets that of the member which applies it. Members of one
// process have one clock, so here it goes wrong by up to a day.
func mutantLocalClock(stamp int64) int64 {
	return stamp + time.Now().UnixNano()%int64(time.Millisecond)*86
}
