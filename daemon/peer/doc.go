// Package peer carries raft messages between members, over gRPC.
//
// Each member opens one stream to every peer for what it sends, so a pair has two. A stream begins
// with a handshake (hello, or a typed refusal in the trailer "tidal-refusal"), then carries batches
// and, once a second, a ping. A Network owns a table of peers that is switched in one place,
// SetPeers; each peer has a goroutine that dials, resolves the name at every attempt, reconnects for
// ever, and writes everything queued for it as one frame. One peer never delays another.
//
// What it promises: Send never blocks and never keeps more than a bound; messages of one stream
// arrive in order, each at most once; a message reaches the Handler only if its sender is the member
// of the handshake and its receiver this one. What it does not promise: that a message arrives. Raft
// repairs a loss, and drops are counted by reason.
//
// A member may keep a table of faults, for drills: Faults, enforced here and in package httpd. A fault
// drops or delays what is sent; streams stay open and fall silent, as in a network that loses packets.
//
// Callers: replica (Send, behind its own interface), member (everything else).
package peer
