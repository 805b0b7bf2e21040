package snapshot

import (
	"log/slog"
	"math"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Unpinned is what Pinned returns when nothing is.
const Unpinned = math.MaxUint64

// pin keeps the log from index on.
type pin struct {
	index uint64 // 0: there is none
	since time.Time
}

// pins are the reasons why a log must keep what it would drop.
type pins struct {
	staging   pin                    // an artifact is being made
	staged    pin                    // an artifact is offered
	consumers map[ident.MemberID]pin // it is being fetched, or was and its consumer has not come up to it
	carried   pin                    // the leader has one of these
	ended     uint64                 // the index of the newest carried pin that the cap has ended
}

// Following is where a replica stands among the others, as far as pins are concerned.
type Following struct {
	// Match is how far the log of each other member is equal to ours, 0 for one to which nothing is
	// being streamed; nil on a follower.
	Match map[ident.MemberID]uint64
	// Cap is the index below which no pin holds, so that the log stays bounded.
	Cap uint64
}

// Pinned forgets the pins that are over, and returns the lowest index that must stay in the log;
// Unpinned if none must. It is called about once a second. A pin ends when its consumer's log has reached it, with the artifact's time,
// and in any case with its own age and with the cap.
func (s *Stager) Pinned(f Following) uint64 {
	now := s.opts.Now()
	type end struct {
		pin
		consumer ident.MemberID // 0: nobody's
	}
	var ends []end
	over := func(p pin, consumer ident.MemberID) bool {
		if p.index == 0 || p.index >= f.Cap && now.Sub(p.since) < s.opts.PinAge {
			return false
		}
		ends = append(ends, end{p, consumer})
		return true
	}
	s.mu.Lock()
	atRest := !s.mu.staging && s.mu.transfers == 0
	p := &s.mu.pins
	for id, c := range p.consumers {
		if match, ok := f.Match[id]; ok && match+1 >= c.index || over(c, id) {
			delete(p.consumers, id)
		}
	}
	var gone *artifact
	if p.staged.index != 0 && (now.Sub(p.staged.since) >= s.opts.TTL || over(p.staged, 0)) {
		gone = s.dropCurrentLocked()
	}
	switch {
	case reached(p.carried.index, f.Match):
		p.carried = pin{}
	case over(p.carried, 0):
		if p.carried.index < f.Cap {
			p.ended = p.carried.index
		}
		p.carried = pin{}
	}
	lowest := p.lowest()
	s.mu.Unlock()
	if atRest {
		s.throttle.rest()
	}
	s.remove(gone)
	for _, p := range ends {
		s.metrics.capHits.Inc()
		s.opts.Logger.Warn("log no longer kept for a snapshot", slog.Any("group", s.opts.Group), slog.Any("peer", p.consumer),
			slog.Uint64("index", p.index), slog.Duration("took", now.Sub(p.since)))
		if p.consumer != 0 && s.opts.PinEnded != nil {
			s.opts.PinEnded(p.consumer, p.index)
		}
	}
	return lowest
}

// reached reports whether the logs of all others have come up to index.
func reached(index uint64, match map[ident.MemberID]uint64) bool {
	for _, m := range match {
		if m+1 < index {
			return false
		}
	}
	return match != nil
}

func (p *pins) lowest() uint64 {
	lowest := uint64(Unpinned)
	note := func(p pin) {
		if mutantPinOffByOne && p.index != 0 {
			p.index++
		}
		if p.index != 0 {
			lowest = min(lowest, p.index)
		}
	}
	note(p.staging)
	note(p.staged)
	note(p.carried)
	for _, c := range p.consumers {
		note(c)
	}
	return lowest
}

// Carry takes over what the leader says that it has pinned, 0 for nothing, so that whoever leads next
// can serve the same consumers. What the cap has ended here is not taken over again, ping after ping.
func (s *Stager) Carry(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index <= s.mu.pins.ended {
		index = 0
	}
	s.mu.pins.carried = pin{index: index, since: s.opts.Now()}
}

// Announce returns the lowest index that is pinned here, or 0: what a leader tells the others.
func (s *Stager) Announce() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lowest := s.mu.pins.lowest(); lowest != Unpinned {
		return lowest
	}
	return 0
}

// Retention is what decides how much of a log may go.
type Retention struct {
	First   uint64 // of the log
	Flushed uint64 // the durable applied index: the log alone has what follows
	Size    uint64 // from here on the log is as large as it should be
	Cap     uint64 // from here on it is as large as it may be for the sake of others; at most Size
	Pinned  uint64 // Unpinned: nothing is
	// Live are the match indexes of the followers that a leader hears. After a lost or late message
	// raft begins again right after them, and would ask for a snapshot that nobody needs.
	Live []uint64
}

// Keep returns the first index that must stay. It is pure.
func (r Retention) Keep() uint64 {
	keep := r.Size
	others := r.Pinned
	for _, match := range r.Live {
		if match+1 >= r.First { // who is behind the log's head needs an artifact, not the log
			others = min(others, match+1)
		}
	}
	return min(keep, max(others, r.Cap), r.Flushed+1)
}
