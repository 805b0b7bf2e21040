// Package member is one member of the cluster: its groups, the way they are born and opened, and the
// one place where an applied roster becomes a dial table.
//
// A member is either fresh (its data directory belongs to no cluster) or initialised. A fresh one
// looks for its cluster: it asks every declared member until the decision table of package
// membership says to make the cluster or to join its birth. An initialised one opens its groups and
// serves without asking anybody, in any boot order. A group whose log or state cannot be trusted is
// quarantined: it stays closed and the member stays up and says why.
//
// What it promises: identity is durable before a group exists; a group is opened only from a
// generation that its marker names; no replica is opened without a ConfState; Start returns at once
// and Stop returns after everything that Start began has ended.
//
// Callers: daemon (wiring), ops (verbs and status). It is the Handler of package peer.
package member
