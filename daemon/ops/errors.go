package ops

import (
	"errors"
	"fmt"
	"time"
)

// ErrQuorumTimeout is the cause of a wait for a majority that ended by its own deadline.
var ErrQuorumTimeout = errors.New("no majority answered in time")

// ReadTimeoutError: nobody confirmed within Waited that this member may serve a linearizable read.
type ReadTimeoutError struct{ Waited time.Duration }

func (e *ReadTimeoutError) Error() string {
	return fmt.Sprintf("no majority confirmed the read within %s", e.Waited)
}

// IndexTimeoutError: the state did not get as far as the read asked for.
type IndexTimeoutError struct {
	Want, Applied uint64
	Waited        time.Duration
}

func (e *IndexTimeoutError) Error() string {
	return fmt.Sprintf("index %d is not applied here after %s; applied is %d", e.Want, e.Waited, e.Applied)
}

// NotFoundError names what there is none of.
type NotFoundError struct{ What, Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no %s %q", e.What, e.Name) }

// FutureError refuses a signal whose time is ahead of this member's clock.
type FutureError struct {
	Record       int // its position among the records of the write, from 0
	Ahead, Limit time.Duration
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("the signal's time is %s ahead of the leader's clock, limit %s", e.Ahead, e.Limit)
}
