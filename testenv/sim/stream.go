package sim

import (
	"errors"
	"slices"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

const (
	maxParts = 3 // of a stream, under way
	maxLines = 5 // of a part
)

// stream is a client of /ingest: it sends lines, each with a key, and has several parts of them under way.
// After a connection that ended it goes on behind the last line acknowledged, cut into other parts.
//
// Every line is taken once, none without those before it.
type stream struct {
	c    *cluster
	id   uint64
	sent uint64 // lines that are or were under way
	done uint64 // lines that were acknowledged
	last uint64 // line that was taken

	// The connection.
	member *member // nil: none
	parts  []*part // under way, in order
	ended  bool    // a part failed: nothing more is sent
	// loose: of a part that failed nothing was taken, and of a later one something may have been.
	loose bool
}

// part is a run of lines that travel as one write.
type part struct {
	from, to uint64 // lines [from, to]
	call     *replica.Call
}

// step sends another part, or connects again, for as long as there are faults.
func (s *stream) step() {
	c := s.c
	if c.healed {
		s.ended = true
		return
	}
	c.after(c.around(c.plan.opEvery), s.step)
	if s.member == nil {
		m := c.leader()
		if m == nil || c.now < m.pausedUntil || m.refuses() {
			return
		}
		s.member, s.sent, s.ended = m, s.done, false
	}
	if s.ended || len(s.parts) == maxParts || c.now < s.member.pausedUntil {
		return
	}
	p := &part{from: s.sent + 1, to: s.sent + 1 + c.rng.Uint64N(maxLines)}
	var b command.Builder
	for line := p.from; line <= p.to; line++ {
		l := lineName{s.id, line}
		b.Signal(command.Signal{Item: "item-1", Type: "view", User: userOf(l), Milli: 1000})
		b.KeyLast(number16(1<<63 | s.id<<32 | line))
	}
	call, err := s.member.driver.Write(b.Bytes(), consensus.AckQuorum)
	c.note(s.member.id, "part", s.id, p.from, p.to)
	if err != nil {
		c.clients.explain(err)
		if _, full := errors.AsType[*replica.OverloadedError](err); !full {
			s.end() // it waits for a queue that is full
		}
		return
	}
	p.call = call
	s.sent = p.to
	s.parts = append(s.parts, p)
	e := c.plan.election()
	c.after(e/2+c.upTo(3*e), func() { s.deadline(p) })
	s.member.look()
}

// deadline: the member gives the stream up, if p is still under way.
func (s *stream) deadline(p *part) {
	if !slices.Contains(s.parts, p) {
		return
	}
	s.c.note(s.member.id, "part late", s.id, p.to)
	for i, p := range s.parts {
		if s.c.clients.explain(p.call.GiveUp()) == failed && i+1 < len(s.parts) {
			s.loose = true
		}
	}
	s.parts = nil
	s.end()
}

// answers takes what was answered, in order.
func (s *stream) answers() {
	c := s.c
	for len(s.parts) > 0 {
		p := s.parts[0]
		res, done, err := p.call.Done()
		if !done {
			break
		}
		s.parts = s.parts[1:]
		switch {
		case err != nil:
			if c.clients.explain(err) == failed && len(s.parts) > 0 {
				s.loose = true
			}
			s.ended = true
		case s.ended: // after the first part that failed nothing is acknowledged
		default:
			if s.last < p.to {
				c.violated("line %d of stream %d is acknowledged at %s, taken is %d", p.to, s.id, res.ID, s.last)
			}
			if s.done = p.to; res.Ack != consensus.AckQuorum {
				c.violated("line %d of stream %d is acknowledged by the leader alone", p.to, s.id)
			}
			c.note(s.member.id, "part acked", s.id, p.to, res.ID.Index)
			c.sometimes("part of a stream acknowledged")
			c.clients.newest = max(c.clients.newest, res.ID.Index)
		}
	}
	if s.ended {
		s.end()
	}
}

// end closes the connection once nothing is under way.
func (s *stream) end() {
	if s.ended = true; len(s.parts) == 0 {
		s.member = nil
	}
}

// broken: the process at the other end is gone.
func (s *stream) broken() {
	if len(s.parts) > 0 {
		s.c.sometimes("stream broken with parts under way")
	}
	s.parts, s.member = nil, nil
}

// taken takes note of a line that was applied.
func (s *stream) taken(line uint64, id ident.EntryID) {
	if line <= s.done || line != s.last+1 && !s.loose {
		s.c.violated("line %d of stream %d is taken at %s, behind line %d; acknowledged are %d", line, s.id, id, s.last, s.done)
	}
	s.last = max(s.last, line)
}
