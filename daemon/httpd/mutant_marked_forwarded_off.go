//go:build !mutant_marked_forwarded

package httpd

const mutantMarkedForwarded = false // a known bug, for testenv/mutants
