package sim

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

// model is the surface as clients know it, in maps: what the writes of the log come to, written down a
// second time without any code of the daemon but its codec. Everything is kept by index, because an
// answer names the index that it reflects.
type model struct {
	collections map[string]*collection
	items       map[name][]version // rising by index
	hidden      map[hide][]hidden  // likewise
	keys        map[[16]byte]keyed
}

type name struct{ collection, item string }

type hide struct {
	user string
	name
}

type collection struct {
	from      uint64 // index
	halfLife  time.Duration
	dimension int
	types     []string
	inUse     bool
}

// version is an item from one index on, until the next version of it.
type version struct {
	index     uint64
	exists    bool
	created   uint64 // index of the entry that made its document, and of the one that wrote it
	written   uint64
	op        uint64 // that wrote it
	views     uint64
	likes     uint64
	dimension int // of its embedding
}

type hidden struct {
	index  uint64
	hidden bool
}

// keyed is what came under an idempotency key.
type keyed struct {
	first   ident.EntryID
	created bool
	refused []refusal
}

type refusal struct {
	record int
	code   string
}

// written is what a write came to.
type written struct {
	number  uint64 // of the write; 0: it is a part of a stream
	created bool
	refused []refusal
	first   ident.EntryID // where it was taken before
	lines   []lineName    // of streams, that were taken now
}

// is reports whether an outcome is what the model says.
func (w written) is(o command.Outcome) bool {
	var refused []refusal
	for _, r := range o.Refused {
		refused = append(refused, refusal{r.Record, r.Code})
	}
	return o.Denied == nil && o.Created == w.created && o.First == w.first && slices.Equal(refused, w.refused)
}

// lineName names a line of a stream.
type lineName struct{ stream, line uint64 }

func newModel() *model {
	d := entity.DefaultCollection()
	c := &collection{from: firstIndex, halfLife: d.HalfLife}
	for _, t := range d.Types {
		c.types = append(c.types, t.Name)
	}
	return &model{
		collections: map[string]*collection{d.Name: c},
		items:       map[name][]version{},
		hidden:      map[hide][]hidden{},
		keys:        map[[16]byte]keyed{},
	}
}

// write applies one write of the entry id.
func (m *model) write(id ident.EntryID, records command.Records) written {
	key, ok := records.WriteKey()
	before, known := m.keys[key.Hash]
	if ok && known {
		w := written{first: before.first, created: before.created, refused: before.refused}
		for records.Next() {
			w.number = max(w.number, numberOf(records.Record()))
		}
		return w
	}
	w := m.records(id, records)
	if ok {
		m.keys[key.Hash] = keyed{id, w.created, w.refused}
	}
	return w
}

func (m *model) records(id ident.EntryID, records command.Records) (w written) {
	single := records.Len() == 1
	for n := 0; records.Next(); n++ {
		key, ok := records.Key()
		r := records.Record()
		w.number = max(w.number, numberOf(r))
		before, known := m.keys[key.Hash]
		switch {
		case !ok || !known:
			before.created, before.refused = false, nil
			created, code := m.record(id.Index, r)
			before.created = created
			if code != "" {
				before.refused = []refusal{{code: code}}
			}
			if line, of := lineOf(r); of {
				w.lines = append(w.lines, line)
			}
			if ok {
				before.first = id
				m.keys[key.Hash] = before
			}
		case single:
			w.first = before.first
		}
		w.created = w.created || before.created
		for _, r := range before.refused {
			w.refused = append(w.refused, refusal{n, r.code})
		}
	}
	return w
}

// record applies one record, or returns the code with which it is refused.
func (m *model) record(index uint64, r command.Record) (created bool, code string) {
	c, ok := m.collections[collectionOf(r)]
	if d, declares := r.(command.Collection); declares {
		return m.declare(index, c, d)
	}
	if !ok {
		return false, command.CodeUnknownCollection
	}
	switch r := r.(type) {
	case command.Signal:
		if !slices.Contains(c.types, r.Type) {
			return false, command.CodeUnknownSignal
		}
		c.inUse = true
		m.change(index, name{r.Collection, r.Item}, func(v *version) {
			if r.Type == "like" {
				v.likes++
			} else {
				v.views++
			}
		})
	case command.Item:
		m.change(index, name{r.Collection, r.ID}, func(v *version) {
			if created = !v.exists; created {
				v.created = index
			}
			v.exists, v.written, v.op = true, index, numberOf(r)
		})
	case command.Embedding:
		n := len(r.Vector) / entity.FloatBytes
		if c.dimension == 0 {
			c.dimension = n
		} else if c.dimension != n {
			return false, command.CodeDimensionMismatch
		}
		m.change(index, name{r.Collection, r.Item}, func(v *version) { v.dimension = n })
	case command.Delete:
		m.change(index, name{r.Collection, r.ID}, func(v *version) { *v = version{} })
	case command.HardNeg:
		h := hide{strings.Clone(r.User), clone(name{r.Collection, r.Item})}
		m.hidden[h] = append(m.hidden[h], hidden{index, r.Hide})
	}
	return created, ""
}

func (m *model) declare(index uint64, c *collection, d command.Collection) (created bool, code string) {
	var want []string
	for _, t := range d.Schema.Types {
		want = append(want, strings.Clone(t.Name))
	}
	if created = c == nil; created {
		c = &collection{from: index}
		m.collections[strings.Clone(d.Name)] = c
	}
	lacks := slices.ContainsFunc(c.types, func(t string) bool { return !slices.Contains(want, t) })
	if c.dimension != 0 && d.Schema.Dimension != 0 && d.Schema.Dimension != c.dimension || c.inUse && (lacks || d.Schema.HalfLife != c.halfLife) {
		return false, command.CodeSchemaInUse
	}
	c.halfLife, c.types = d.Schema.HalfLife, want
	if d.Schema.Dimension != 0 {
		c.dimension = d.Schema.Dimension
	}
	return created, ""
}

func clone(n name) name { return name{strings.Clone(n.collection), strings.Clone(n.item)} }

// change adds a version of an item.
func (m *model) change(index uint64, n name, do func(*version)) {
	v := m.at(n, index)
	do(&v)
	v.index = index
	n = clone(n)
	m.items[n] = append(m.items[n], v)
}

// at returns an item as of index.
func (m *model) at(n name, index uint64) version {
	all := m.items[n]
	i := sort.Search(len(all), func(i int) bool { return all[i].index > index })
	if i == 0 {
		return version{}
	}
	return all[i-1]
}

// visible returns an item as a reader sees it as of index.
func (m *model) visible(n name, index uint64) version {
	v := m.at(n, index)
	if !v.exists {
		return version{}
	}
	v.index = 0
	return v
}

// hides reports whether a user hides an item as of index.
func (m *model) hides(h hide, index uint64) bool {
	all := m.hidden[h]
	i := sort.Search(len(all), func(i int) bool { return all[i].index > index })
	return i > 0 && all[i-1].hidden
}

// exists reports whether there is a collection as of index.
func (m *model) exists(collection string, index uint64) bool {
	c, ok := m.collections[collection]
	return ok && c.from <= index
}

// feed lists the items of a collection that a user sees as of index, sorted.
func (m *model) feed(collection, user string, index uint64) []string {
	var ids []string
	for n := range m.items {
		if n.collection == collection && m.at(n, index).exists && !m.hides(hide{user, n}, index) {
			ids = append(ids, n.item)
		}
	}
	slices.Sort(ids)
	return ids
}

func collectionOf(r command.Record) string {
	switch r := r.(type) {
	case command.Signal:
		return r.Collection
	case command.Item:
		return r.Collection
	case command.Embedding:
		return r.Collection
	case command.HardNeg:
		return r.Collection
	case command.Delete:
		return r.Collection
	case command.Collection:
		return r.Name
	}
	panic(fmt.Sprintf("a record of type %T", r))
}

// numberOf returns the number of the write in a record, or 0 where it has none: every write has a record
// with one, unless it is a part of a stream, whose lines are named.
func numberOf(r command.Record) uint64 {
	switch r := r.(type) {
	case command.Signal:
		if strings.HasPrefix(r.User, writePrefix) {
			return numberIn(r.User)
		}
	case command.Item:
		return numberIn(string(opOf(r.Attrs)))
	case command.Embedding:
		bits := uint32(r.Vector[0]) | uint32(r.Vector[1])<<8 | uint32(r.Vector[2])<<16 | uint32(r.Vector[3])<<24
		return uint64(math.Float32frombits(bits))
	}
	return 0
}

// The users of signals: of a write, and of a line.
const (
	writePrefix = "w"
	linePrefix  = "l"
)

func userOf(l lineName) string { return fmt.Sprintf("%s%d.%d", linePrefix, l.stream, l.line) }

func lineOf(r command.Record) (l lineName, ok bool) {
	s, ok := r.(command.Signal)
	if !ok || !strings.HasPrefix(s.User, linePrefix) {
		return l, false
	}
	stream, line, _ := strings.Cut(s.User, ".")
	return lineName{numberIn(stream), numberIn(line)}, true
}

// numberIn returns the number in a text.
func numberIn(s string) (n uint64) {
	for _, c := range s {
		if c >= '0' && c <= '9' {
			n = 10*n + uint64(c-'0')
		}
	}
	return n
}

// opOf cuts the number of the write out of attributes.
func opOf(attrs []byte) []byte {
	for i, c := range attrs {
		if c == ',' {
			return attrs[:i]
		}
	}
	return attrs
}

// String is for messages.
func (v version) String() string {
	return fmt.Sprintf("exists %t, made at %d, version %d by write %d, %d views, %d likes, dimension %d",
		v.exists, v.created, v.written, v.op, v.views, v.likes, v.dimension)
}
