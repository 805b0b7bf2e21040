//go:build mutant_local_clock

package apply

import "time"

// mutantLocalClock: a signal without a time gets that of the member which applies it; in microseconds,
// since members of one process have one clock.
func mutantLocalClock(int64) int64 { return time.Now().UnixMicro() }
