package journal

import (
	"fmt"
	"strings"
	"time"
)

// FaultBegun is a fault that this member keeps up from now on, for a drill.
type FaultBegun struct {
	ID         string   `json:"id"`
	Peers      []string `json:"peers"`
	DurationMS int64    `json:"duration_ms"`
}

func (FaultBegun) Kind() Kind { return KindFaultBegun }
func (f FaultBegun) Text() string {
	return fmt.Sprintf("fault %s of a drill against %s began, for %s at most", f.ID, strings.Join(f.Peers, ", "), time.Duration(f.DurationMS)*time.Millisecond)
}
func (FaultBegun) Same() string { return "" }

// FaultEnded is a fault that is over.
type FaultEnded struct {
	ID     string   `json:"id"`
	Peers  []string `json:"peers"`
	Healed bool     `json:"healed"` // before its time was up
}

func (FaultEnded) Kind() Kind { return KindFaultEnded }
func (f FaultEnded) Text() string {
	how := "ended by itself"
	if f.Healed {
		how = "was healed"
	}
	return fmt.Sprintf("fault %s of a drill against %s %s", f.ID, strings.Join(f.Peers, ", "), how)
}
func (FaultEnded) Same() string { return "" }
