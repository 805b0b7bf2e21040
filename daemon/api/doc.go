// Package api is the wire between a member and everyone outside it: JSON requests and responses,
// error codes, header names.
//
// Fields are promises: they are added, never renamed, removed or given another meaning. A value that
// is not known is null, never 0, but for the three legacy numbers of a status row, which state the
// worst case of a member that does not answer. Ids are strings, times RFC 3339 in UTC, durations
// end in _ms, sizes in _bytes.
//
// Callers: httpd and ops on one side, tidalctl on the other; it is the only package of the daemon
// that tidalctl links. It imports nothing of ours.
package api
