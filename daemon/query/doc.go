// Package query answers questions from one group's state: the feed of a collection, and one item.
//
// A question is asked of a view, so an answer reflects exactly one applied index, view.Position. The
// moment it is asked for is an argument; no clock is read. The same view and moment give the same
// order on every member: it is that of exact masses, not of the floats computed from them.
//
// Callers: the gateway, shard for the parts of a scattered question. It never writes.
package query
