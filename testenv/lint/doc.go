// Package lint holds the rules of the house that a compiler does not check, as tests: who may import
// whom, which packages are pure, where nothing may sleep, what must be documented.
package lint
