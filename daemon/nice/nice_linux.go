package nice

import "syscall"

// niceness is the lowest priority but one that still gets a tenth of a processor that others want for
// themselves: what is nice has to end.
const niceness = 10

// lower lowers the priority of the calling thread: Linux has one for each.
func lower() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) }
