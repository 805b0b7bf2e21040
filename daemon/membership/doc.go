// Package membership holds who belongs to a cluster, as values: the roster that travels on the log
// of group 0, the genesis record that a cluster is born by, the arithmetic of quorums, and the
// decision what a member without data does when the others have answered.
//
// All of it is pure. Nothing here starts a goroutine, reads a clock or asks anybody; the same
// arguments give the same answer on every member, so it may be used while applying the log.
//
// Callers: command and apply (the roster as an entry), datadir (the genesis record on disk), peer and
// member (who is dialled, birth), httpd (quorums and roles in status).
package membership
