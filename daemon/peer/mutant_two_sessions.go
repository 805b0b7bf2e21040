//go:build mutant_two_sessions

package peer

// mutantTwoSessions: two live processes of one identity are both heard.
const mutantTwoSessions = true
