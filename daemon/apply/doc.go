// Package apply turns committed entries into state: the one writer of a group's store.
//
// What it promises: the same entries on the same state give the same state and the same outcomes, on
// every member and however the log is cut into runs. It reads no clock and draws nothing; time comes
// from the entry. One call of Apply is one batch that also carries the position, so a crash finds all
// of it or nothing. An entry is decoded whole before it has any effect.
//
// What depends on a request alone was checked at the gateway; what depends on state (is there such a
// collection, such a signal type?) is decided here, record by record, and reported to the waiter. What
// would spoil the state for good (a weight or an id out of range) is refused here too.
//
// A run reads each row once and writes it once: rows are decoded into a bounded cache, changed there,
// and written when the run ends. The cache belongs to the Machine and holds nothing that the store
// does not, between two calls.
//
// Callers: replica's apply worker owns the Machine, member calls Birth. Nobody else writes to a store.
package apply
