// Package consensus is one replica's brain: a single-threaded machine around raft's RawNode, with
// the clients that wait for it.
//
// Step takes one input and returns what is to be done because of it. It starts no goroutine, reads
// no clock, draws no random number (raft itself draws its election jitter), and does no I/O except
// reads of log entries that have left the in-memory ring, each bounded by Limits.MessageBytes or
// Limits.ApplyBytes. Production (package replica) and the simulator (testenv/sim) drive the same
// machine; they differ only in who carries out the effects.
//
// What it promises:
//
//   - Persist before speak: no vote, append response or answer to a client leaves a Step before the
//     driver has handed back the frame that it rests on, and nothing of a term but pre-votes before
//     the frame that carries the term.
//   - One Ready is one frame: entries travel to the log with the whole HardState that came with them.
//   - Exactly one answer a token: a write is answered with its entry, or with an error that says
//     that nothing happened. A token that is never answered has an unknown outcome, which only the
//     caller's deadline can say.
//   - An assertion about the replica's own state that fails, raft's included, is Effects.Fatal and
//     never a panic; after it the machine does nothing more.
//
// Callers: replica, testenv/sim. Nobody else steps a machine.
package consensus
