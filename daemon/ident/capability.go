package ident

import "strings"

// Capabilities is the set of log-record kinds and formats that a binary understands. A bit is given
// once and never changes its meaning.
type Capabilities uint64

// The bits. Each says since when, and when it may be taken for granted.
const (
	// CapBase is everything of the first release. Every binary has it.
	CapBase Capabilities = 1 << iota
)

// Supported is what this binary understands.
const Supported = CapBase | capFuture

// Eager is what a leader lets the log make use of as soon as every member understands it, rather than when
// somebody first needs it: from then on no older binary can take part. A format that nobody asks for
// by name is raised so. Nothing of the first release is.
const Eager = capFuture

// Has reports whether c holds every bit of want.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// Names lists the bits that are set, in order of their value; unknown bits as "bit<n>".
func (c Capabilities) Names() []string {
	var names []string
	for bit := range 64 {
		switch b := Capabilities(1) << bit; {
		case c&b == 0:
		case b == CapBase:
			names = append(names, "base")
		default:
			names = append(names, "bit"+GroupID(bit).String())
		}
	}
	return names
}

// String joins Names with commas.
func (c Capabilities) String() string { return strings.Join(c.Names(), ",") }
