//go:build mutant_incarnation_ignored

package membership

// mutantIncarnationIgnored: a candidate is known by its name alone.
const mutantIncarnationIgnored = true
