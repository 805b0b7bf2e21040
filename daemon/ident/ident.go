// Package ident names things: members, groups, clusters, incarnations, log entries, capabilities,
// and moments on the hybrid logical clock.
//
// Every name has one printed form, used alike in JSON, logs, metrics and error messages: numbers in
// decimal, byte strings in lower-case hex. Parsing accepts exactly what printing produces.
//
// Callers: every package of the daemon. It imports nothing of ours.
package ident

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strconv"
)

// MemberID is a member's number, given by the log, permanent, never reused. 0 means none: a member
// that has not been admitted, or no leader.
type MemberID uint64

// String returns the id in decimal.
func (id MemberID) String() string { return strconv.FormatUint(uint64(id), 10) }

// LogValue keeps the shape of an id the same in every line.
func (id MemberID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// ParseMemberID reads what String prints. 0 is refused.
func ParseMemberID(s string) (MemberID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("member id %q: want a decimal number of at least 1", s)
	}
	return MemberID(n), nil
}

// GroupID names one replicated log with its state. Group 0 holds the replicated surface and the
// roster; groups 1 and up are shards.
type GroupID uint32

// String returns the id in decimal.
func (g GroupID) String() string { return strconv.FormatUint(uint64(g), 10) }

// LogValue keeps the shape of a group the same in every line.
func (g GroupID) LogValue() slog.Value { return slog.StringValue(g.String()) }

// EntryID names one log entry. Two entries of a group with the same EntryID are the same entry
// (Ongaro, "Consensus: Bridging Theory and Practice", §3.5, Log Matching).
type EntryID struct {
	Term  uint64
	Index uint64
}

// Less orders entries as an election does: by term, then by index.
func (e EntryID) Less(o EntryID) bool {
	if e.Term != o.Term {
		return e.Term < o.Term
	}
	return e.Index < o.Index
}

// String returns "term/index".
func (e EntryID) String() string { return fmt.Sprintf("%d/%d", e.Term, e.Index) }

// History names one life of a cluster. It is raised where a majority was lost for good and the cluster
// goes on from what is left: what belongs to a former life is refused, never mixed. The zero History is
// that of a cluster since its birth.
type History struct {
	Epoch uint64 // grows by one each time
	Nonce uint64 // random: two recoveries of one cluster are two lives
}

// String returns "epoch.nonce", the nonce in 16 hex digits; "0" since birth.
func (h History) String() string {
	if h == (History{}) {
		return "0"
	}
	return fmt.Sprintf("%d.%016x", h.Epoch, h.Nonce)
}

// ParseHistory reads what String prints.
func ParseHistory(s string) (History, error) {
	var h History
	if s == "0" {
		return h, nil
	}
	if _, err := fmt.Sscanf(s, "%d.%x", &h.Epoch, &h.Nonce); err != nil || h.String() != s || h.Epoch == 0 {
		return History{}, fmt.Errorf("history %q: want 0, or an epoch, a dot and 16 hex digits", s)
	}
	return h, nil
}

// Incarnation is 128 random bits made together with a data directory: the life of one disk.
type Incarnation [16]byte

// MakeIncarnation draws one from r.
func MakeIncarnation(r io.Reader) (Incarnation, error) {
	var i Incarnation
	if _, err := io.ReadFull(r, i[:]); err != nil {
		return Incarnation{}, fmt.Errorf("draw an incarnation: %w", err)
	}
	return i, nil
}

// IsZero reports whether i was never made.
func (i Incarnation) IsZero() bool { return i == Incarnation{} }

// String returns 32 hex digits.
func (i Incarnation) String() string { return hex.EncodeToString(i[:]) }

// LogValue keeps the shape of an incarnation the same in every line.
func (i Incarnation) LogValue() slog.Value { return slog.StringValue(i.String()) }

// ParseIncarnation reads what String prints.
func ParseIncarnation(s string) (Incarnation, error) {
	b, err := parse16(s)
	return Incarnation(b), wrapParse("incarnation", s, err)
}

// ClusterID is drawn from the genesis record: the same for every member of one cluster.
type ClusterID [16]byte

// IsZero reports whether the member belongs to no cluster yet.
func (c ClusterID) IsZero() bool { return c == ClusterID{} }

// String returns 32 hex digits.
func (c ClusterID) String() string { return hex.EncodeToString(c[:]) }

// LogValue keeps the shape of a cluster id the same in every line.
func (c ClusterID) LogValue() slog.Value { return slog.StringValue(c.String()) }

// ParseClusterID reads what String prints.
func ParseClusterID(s string) (ClusterID, error) {
	b, err := parse16(s)
	return ClusterID(b), wrapParse("cluster id", s, err)
}

func parse16(s string) (b [16]byte, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil {
		return b, err
	}
	if len(raw) != len(b) || hex.EncodeToString(raw) != s {
		return b, fmt.Errorf("want 32 lower-case hex digits")
	}
	return [16]byte(raw), nil
}

func wrapParse(what, s string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", what, s, err)
}
