//go:build mutant_incarnation_ignored

package member

// mutantIncarnationIgnored: who has a member's id is that member, on whatever disk.
const mutantIncarnationIgnored = true
