package member

import (
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestHandover(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	// The leader has 90 durable, 100 is committed by the others.
	stuck := handover{unsynced: 2 * patience, patience: patience, durable: 90, commit: 100}
	full := handover{full: true, patience: patience, durable: 120, commit: 100}
	fit := func(id ident.MemberID, match uint64) candidate {
		return candidate{id: id, match: match, active: true, room: true}
	}
	ill := func(id ident.MemberID, match uint64) candidate {
		return candidate{id: id, match: match, active: true, room: true, reseeds: true}
	}
	gone := candidate{id: 2, match: 110, room: true}
	crammed := candidate{id: 2, match: 110, active: true}
	for _, c := range []struct {
		name   string
		h      handover
		voters []candidate
		reason string
		to     ident.MemberID
	}{
		{"all is well", handover{unsynced: patience, patience: patience}, []candidate{fit(2, 110)}, "", 0},
		{"a slow disk, and nobody else", stuck, nil, handoverDiskSlow, 0},
		{"a slow disk, and one who is ahead", stuck, []candidate{fit(2, 110)}, handoverDiskSlow, 2},
		{"the furthest goes first", stuck, []candidate{fit(2, 105), fit(3, 110), fit(4, 110)}, handoverDiskSlow, 3},
		{"one who lacks what is committed", stuck, []candidate{fit(2, 99)}, handoverDiskSlow, 0},
		{"one who is gone", stuck, []candidate{gone, fit(3, 100)}, handoverDiskSlow, 3},
		{"one whose disk is full", stuck, []candidate{crammed, fit(3, 100)}, handoverDiskSlow, 3},
		{"one whose disk is no faster", handover{unsynced: 2 * patience, patience: patience, durable: 100, commit: 100},
			[]candidate{fit(2, 100)}, handoverDiskSlow, 0},
		{"a full disk, and one with room", full, []candidate{crammed, fit(3, 100)}, handoverDiskFull, 3},
		{"a full disk everywhere", full, []candidate{crammed}, handoverDiskFull, 0},
		{"a full disk, and nobody in step", full, []candidate{fit(2, 99)}, handoverDiskFull, 0},
		{"full and slow", handover{full: true, unsynced: 2 * patience, patience: patience, durable: 100, commit: 100},
			[]candidate{fit(2, 100)}, handoverDiskFull, 2},
		{"a reseed, and one that is well", handover{reseeds: true, commit: 100}, []candidate{ill(2, 110), fit(3, 100)}, handoverReseed, 3},
		{"a reseed everywhere", handover{reseeds: true, commit: 100}, []candidate{ill(2, 110), ill(3, 110)}, handoverReseed, 0},
		{"a full disk, and one that waits for a reseed", full, []candidate{ill(2, 110)}, handoverDiskFull, 2},
	} {
		c.h.voters = c.voters
		if reason, to := c.h.reason(), c.h.target(); reason != c.reason || to != c.to {
			t.Errorf("%s: reason %q to %s, want %q to %s", c.name, reason, to, c.reason, c.to)
		}
	}
}
