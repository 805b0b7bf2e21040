package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

// birth is where every replica begins.
var birth = ident.EntryID{Term: 1, Index: 1}

// runEntries is how many entries the replay applies at once; what it is makes no difference.
const runEntries = 512

// replay builds the state anew, compares every member's with it where that stands, and counts on the
// way what became of the writes. It begins at the birth of the cluster or, where no log reaches back
// to it any more, at the oldest state: then the others are compared with what that one and the log
// give, and of an acknowledged write that is older than the log nothing can be said.
func (a *auditor) replay(claims Claims) (err error) {
	by := slices.SortedFunc(slices.Values(a.members), func(x, y *member) int { return cmp.Compare(x.applied.Index, y.applied.Index) })
	store, err := a.beginning(by[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	machine, err := apply.New(store)
	if err != nil {
		return err
	}
	a.report.From = store.Position().Applied.Index
	r := &replay{machine: machine, log: a.log, base: a.base.Index, at: a.report.From, seen: map[string]int{}, delivered: map[ident.Incarnation]uint64{}}
	if err := r.noteDelivered(store); err != nil {
		return err
	}
	for _, m := range by {
		if m.applied.Index > a.base.Index+uint64(len(a.log)) {
			continue // found before
		}
		if err := r.to(m.applied.Index); err != nil {
			return err
		}
		if err := a.compare(m, store); err != nil {
			return err
		}
		a.report.Rebuilt++
	}
	if err := r.to(a.base.Index + uint64(len(a.log))); err != nil {
		return err
	}
	a.checkClaims(claims, r.seen)
	return nil
}

// beginning opens a copy of the state that the replay begins with.
func (a *auditor) beginning(oldest *member) (*state.Store, error) {
	o := state.Options{FS: vfs.NewMem(), Dir: storeDir}
	if a.base != birth {
		if _, err := vfs.Clone(oldest.store, o.FS, storeDir, storeDir); err != nil {
			return nil, fmt.Errorf("copy the state of %s: %w", oldest.name, err)
		}
		return state.Open(o)
	}
	genesis := a.members[0].genesis
	at := state.Position{Applied: birth, Conf: genesis.ConfState()}
	if err := state.Create(o, at, func(b *state.Batch) error { return apply.Birth(b, genesis.Roster()) }); err != nil {
		return nil, err
	}
	return state.Open(o)
}

type replay struct {
	machine *apply.Machine
	log     []*pb.Entry // from the entry after base on
	base    uint64
	at      uint64 // applied
	// seen counts, by user, the signals that had an effect.
	seen map[string]int
	// delivered is the last operation that was met of each chain of an outbox.
	delivered map[ident.Incarnation]uint64
}

// to applies the log up to index.
func (r *replay) to(index uint64) error {
	for r.at < index {
		n := min(index-r.at, runEntries)
		from := r.at - r.base
		run := &apply.Run{Entries: r.log[from : from+n]}
		if err := r.machine.Apply([]*apply.Run{run}); err != nil {
			return fmt.Errorf("replay entries %d to %d: %w", r.at+1, r.at+n, err)
		}
		for i, e := range run.Entries {
			if err := r.note(e, run.Outcomes[i]); err != nil {
				return err
			}
		}
		r.at += n
	}
	return nil
}

// note counts the signals of one entry that were taken: neither refused, nor taken before under the same
// key.
func (r *replay) note(e *pb.Entry, outcomes []command.Outcome) error {
	if e.GetType() != pb.EntryNormal {
		return nil
	}
	entry, err := command.Decode(e.GetData())
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
	for n := 0; ; n++ {
		records, ok := entry.Writes.Next()
		if !ok {
			return nil
		}
		if outcomes[n].Denied != nil || outcomes[n].First != (ident.EntryID{}) {
			continue
		}
		for i := 0; records.Next(); i++ {
			if slices.ContainsFunc(outcomes[n].Refused, func(f command.Refusal) bool { return f.Record == i }) {
				continue
			}
			switch records.Kind() {
			case command.RecordSignal:
				r.sees(records.Signal())
			case command.RecordOutbox:
				r.noteOutbox(records.Outbox())
			}
		}
	}
}

func (r *replay) sees(s command.Signal) {
	if s.User != "" {
		r.seen[s.User]++
	}
}

// noteDelivered takes note of what the state that the replay begins with has taken over.
func (r *replay) noteDelivered(store *state.Store) error {
	view := store.NewView()
	all, err := apply.Delivered(view)
	for origin, d := range all {
		r.delivered[origin] = d.Seq
	}
	return errors.Join(err, view.Close())
}

// noteOutbox counts the signals of the operations that a delivery brought and no earlier one had: the
// log may hold an operation several times. What is counted is told by the chain alone, not by the state
// that is audited.
func (r *replay) noteOutbox(o command.Outbox) {
	for i, op := range o.Ops {
		if seq := o.First + uint64(i); seq == r.delivered[o.Origin]+1 {
			r.delivered[o.Origin] = seq
			for records := command.MakeRecords(op.Write); records.Next(); {
				if records.Kind() == command.RecordSignal {
					r.sees(records.Signal())
				}
			}
		}
	}
}

func (a *auditor) checkClaims(c Claims, seen map[string]int) {
	once := 1
	if a.report.From > birth.Index {
		once = 0 // or it is older than the log
	}
	for _, claim := range []struct {
		ids      []string
		min, max int
		told     string
	}{
		{c.Acked, once, 1, "acknowledged"},
		{c.Refused, 0, 0, "refused"},
		{c.Unknown, 0, 1, "of unknown outcome"},
	} {
		for _, id := range claim.ids {
			if n := seen[id]; n < claim.min || n > claim.max {
				a.find("I3", "", "write %s was %s and is in the log %d times", id, claim.told, n)
			}
		}
	}
}

// compare holds a member's state against the rebuilt one, which stands at the same index.
func (a *auditor) compare(m *member, rebuilt *state.Store) (err error) {
	store, err := state.Open(state.Options{FS: m.store, Dir: storeDir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	have, want := store.NewView(), rebuilt.NewView()
	defer func() { err = errors.Join(err, have.Close(), want.Close()) }()
	if h, w := have.Position(), want.Position(); h.Applied != w.Applied || !proto.Equal(h.Conf, w.Conf) {
		a.find("I7", m.name, "state stands at %s with %v, replaying gives %s with %v", h.Applied, h.Conf, w.Applied, w.Conf)
	}
	difference, err := firstDifference(have, want)
	if difference != "" {
		a.find("I7", m.name, "state at index %d is not what the log gives: %s", m.applied.Index, difference)
	}
	return err
}

// firstDifference walks both states side by side. The tables of package state itself, which begin
// with 0x00, are the positions.
func firstDifference(have, want *state.View) (difference string, err error) {
	h, w := have.Iter([]byte{1}, nil), want.Iter([]byte{1}, nil)
	defer func() { err = errors.Join(err, h.Close(), w.Close()) }()
	okH, okW := h.First(), w.First()
	for okH && okW && difference == "" {
		switch c := bytes.Compare(h.Key(), w.Key()); {
		case c < 0:
			difference = fmt.Sprintf("key %q should not be there", h.Key())
		case c > 0:
			difference = fmt.Sprintf("key %q is missing", w.Key())
		case !bytes.Equal(h.Value(), w.Value()):
			difference = fmt.Sprintf("key %q holds %x, want %x", h.Key(), h.Value(), w.Value())
		}
		okH, okW = h.Next(), w.Next()
	}
	if err := errors.Join(h.Error(), w.Error()); err != nil || difference != "" {
		return difference, err
	}
	if okH {
		difference = fmt.Sprintf("key %q should not be there", h.Key())
	} else if okW {
		difference = fmt.Sprintf("key %q is missing", w.Key())
	}
	return difference, nil
}
