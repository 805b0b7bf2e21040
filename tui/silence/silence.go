// Package silence keeps bubbletea from asking the terminal for its background colour.
//
// bubbletea v1 asks in an init function, so every program that links it asks, whatever it was started
// for: `tidalctl status` would write a query to the terminal, read what the user typed ahead as if it
// were the answer, and wait five seconds where none comes. termenv, which does the asking, takes an
// output for no terminal while CI is set. So this package sets it before bubbletea is initialised, and
// Over, called by a package that imports bubbletea, takes it back.
//
// Go initialises packages in the order of their import paths once what they import is initialised
// (The Go Programming Language Specification, Program initialization); this one imports os alone, and
// termenv waits for golang.org/x/sys. A test under a pty in tui fails when that stops to hold. The
// package goes when bubbletea v2, which does not ask, takes the place of v1.
//
// Callers: tui. It imports nothing of ours.
package silence

import "os"

const variable = "CI"

// unset says that the variable was not set when the process began.
var unset = hush()

func hush() bool {
	if _, set := os.LookupEnv(variable); set {
		return false
	}
	os.Setenv(variable, "1") // fails for malformed names alone
	return true
}

// Over puts the environment back as it was.
func Over() bool {
	if unset {
		os.Unsetenv(variable)
	}
	return unset
}
