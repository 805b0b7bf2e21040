// Package mutants builds known bugs into the packages under daemon, one at a time, and has the tests
// that must find them run: a test that cannot fail proves nothing. The table is in mutants_test.go,
// how to add one in README.md. It runs with the tag soak, for it compiles a test binary a mutant.
package mutants
