// Package outbox keeps the writes that a member took by itself (ack=local) until the log has taken them
// over: signals and hard negatives, which mean the same wherever in the log they end up.
//
// A member takes a write into a chain: operations with a place, a stamp of its clock and a hash that
// covers all before them. A chain begins when the outbox is opened and is never gone on with by another
// opening, so a disk that was restored from an old copy cannot give one place to two operations. What is
// held is a set: chains of other members come by exchanges (Merge), and merging is union, so it does not
// matter who exchanged with whom, in which order, how often. Whoever holds operations may deliver them;
// the log says in its state how far each chain is delivered, and that is what makes them count once.
//
// What it promises: an operation that was taken or merged survives the crash of this process and of its
// disk's power, until a state of this member holds it; many writers share one sync; memory is bounded;
// after the first error of the disk nothing more is taken, and what was taken can still be delivered.
// Nothing is ever dropped because it cannot be delivered.
//
// Callers: member opens it, delivers from it and tells it what was delivered; ops takes writes into it,
// reads what is pending and exchanges. Format: file.go. Why not otherwise: DESIGN.md.
package outbox
