// Package entity is the data model of one group: items, the totals of their signals, decayed masses
// and the ranks made from them, embeddings, what users hide, the schema of a collection, the receipts
// of keyed writes, and the keys and records that all of it is stored under.
//
// It is pure: no clock, no I/O, no goroutine, no map. What is stored is made of integers only, because
// compilers and architectures disagree about floats and members must not disagree about their state;
// a float64 appears in a Score, which is an answer and never stored. An embedding is the bits that a
// client gave: nothing here computes with them.
//
// # Words
//
// A signal is worth its own weight times the weight of its type, both in thousandths, so in units of
// a millionth. Its mass is that worth times 2^(time/half-life): the older a signal, the smaller, and
// the sum of an item's masses orders items the same at any moment. A score is a mass seen from a
// moment: mass · 2^-(now/half-life). A rank is a mass that an item's own does not exceed; the rank table
// lists items by it. Of an item with few signals it is the mass itself, of one with many the upper edge
// of a sixteenth of an octave, so that such an item moves only when its mass has grown by some 4 %.
//
// # Tables (the first byte of every key; keys are big-endian, because they sort)
//
//	roster      01                                          -> membership roster
//	collection  02 | name                                   -> Collection
//	item        03 | collection u32 | id                    -> Item
//	row         04 | collection u32 | id                    -> Row
//	embedding   06 | collection u32 | id                    -> Embedding
//	hardneg     07 | collection u32 | length u16 | user | item -> HardNeg
//	receipt     08 | period u32 | hash of an idempotency key, 16 -> Receipt
//	receipts    09                                          -> Receipts
//	forgotten   0a                                          -> Forgotten
//	delivered   0a | origin of a chain of an outbox, 16     -> Delivered
//	features    0b                                          -> capabilities u64
//	rank        0c | collection u32 | rank, falling: exponent u64, mantissa u64 | id -> (empty)
//
// An id is always the last part of its key, or its length stands before it, so any bytes may stand in
// it and ids sort by their bytes.
// The rank key of an item is there exactly when its row says that it exists, and its rank is the row's.
// Older binaries had ranks under 05, by whole sixteenths of an octave; apply moves them. A row that says nothing is not stored. An embedding needs no item, as a row needs
// none. What a user hides is about an id, and outlives the item.
//
// Callers: apply writes all of this, query reads it, the gateway checks ids with CheckID. Nobody else
// knows the layout.
package entity
