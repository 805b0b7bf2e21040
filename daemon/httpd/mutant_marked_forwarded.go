//go:build mutant_marked_forwarded

package httpd

// mutantMarkedForwarded: what another member forwarded is forwarded again.
const mutantMarkedForwarded = true
