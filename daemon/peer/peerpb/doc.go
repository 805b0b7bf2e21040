// Package peerpb is the wire between members, generated from peer.proto. Only package peer uses it:
// what arrives here has not been checked.
package peerpb

//go:generate go -C ../../../tools run ./protogen ../daemon/peer/peerpb/peer.proto
