package httpd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ops"
)

// decoder turns JSON into the records of one write. What it hands to the builder is a part of the
// text, which the builder copies.
//
// A record that is refused leaves nothing behind: it is added when it was read whole.
type decoder struct {
	scanner
	out       command.Builder
	principal string // whose idempotency keys these are

	// place is 1 more than the position in an array of the record that is read; 0: it is in none.
	place int
	// line says that a record is a line of a stream, in which kind and key are no attributes.
	line bool
	// checkTime, if set, refuses signals from the future; else the whole write is refused later.
	checkTime func(at int64) *ops.FutureError

	attrs  members // scratch
	doc    []byte  // scratch
	vector []byte  // scratch
}

// reader reads one record, an object, and adds it to the write.
type reader func(*decoder) error

// decodeRecords reads a whole body: one record, or an array of them.
func (d *decoder) decodeRecords(body []byte, read reader) (array bool, err error) {
	d.scanner = scanner{in: body}
	if d.peek() != '[' {
		if err := read(d); err != nil {
			return false, err
		}
		return false, inField("", d.end())
	}
	if err := d.open('['); err != nil {
		return true, inField("", err)
	}
	for first := true; ; first = false {
		d.place = 0
		more, err := d.more(first, ']')
		if err != nil {
			return true, inField("", err)
		}
		if !more {
			break
		}
		if d.out.Count() == api.MaxRecords {
			return true, badField("", "the array has more than %d records", api.MaxRecords)
		}
		d.place = d.out.Count() + 1
		if err := read(d); err != nil {
			return true, err
		}
	}
	if err := d.end(); err != nil {
		return true, inField("", err)
	}
	if d.out.Count() == 0 {
		return true, badField("", "the array is empty")
	}
	return true, nil
}

// named is the name of a field as an error has it: with the place of its record.
func (d *decoder) named(field string) string {
	switch {
	case d.place == 0:
		return field
	case field == "":
		return fmt.Sprintf("[%d]", d.place-1)
	default:
		return fmt.Sprintf("[%d].%s", d.place-1, field)
	}
}

// inField turns an error of the scanner at a field's value into a problem that names the field.
func inField(field string, err error) error {
	if e, ok := errors.AsType[*syntaxError](err); ok {
		return badField(field, "%s", e.Error())
	}
	return err
}

// text shows bytes that nobody changes as a string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// id reads the value of field as an id. It is a part of the text.
func (d *decoder) id(field string) (string, error) {
	v, err := d.str()
	if err == nil {
		if len(v) > 0 && len(v) <= api.MaxIDBytes { // str has seen that it is UTF-8
			return text(v), nil
		}
		return "", checkID(d.named(field), v)
	}
	return "", inField(d.named(field), err)
}

// object reads an object: field reads the value of a member and returns its bit, 0 for one that there
// is not. seen has the bits of all members.
func (d *decoder) object(what string, field func(name []byte) (bit int, err error)) (seen int, err error) {
	if err := d.open('{'); err != nil {
		return 0, inField(d.named(""), err)
	}
	for first := true; ; first = false {
		more, err := d.more(first, '}')
		if err != nil {
			return 0, inField(d.named(""), err)
		}
		if !more {
			return seen, nil
		}
		k, err := d.key()
		if err != nil {
			return 0, inField(d.named(""), err)
		}
		bit, err := field(k)
		switch {
		case err != nil:
			return 0, err
		case bit == 0:
			return 0, badField(d.named(bounded(k)), "%s has no such field", what)
		case seen&bit != 0 && bit != seenAttribute:
			return 0, badField(d.named(bounded(k)), "given twice")
		}
		seen |= bit
	}
}

// The fields of records, as bits of what was seen.
const (
	seenItem = 1 << iota
	seenCollection
	seenUser
	seenKey
	seenKind
	seenSignal
	seenWeight
	seenTS
	seenVector
	seenOp
	seenHalfLife
	seenSignals
	seenAttributes
	seenDimension

	seenAttribute // of an item, any number of times
)

// missing refuses a record without one of the fields that it needs.
func (d *decoder) missing(seen int, need int) error {
	for _, f := range []struct {
		bit  int
		name string
	}{{seenItem, "item"}, {seenUser, "user"}, {seenSignal, "signal"}, {seenVector, "vector"}, {seenOp, "op"}} {
		if need&f.bit != 0 && seen&f.bit == 0 {
			return badField(d.named(f.name), "is missing")
		}
	}
	return nil
}

// common reads the fields that several records have.
func (d *decoder) common(name []byte, item, collection, user, key *string) (bit int, err error) {
	switch string(name) {
	case "item":
		if item != nil {
			*item, err = d.id("item")
			return seenItem, err
		}
	case "collection":
		*collection, err = d.id("collection")
		return seenCollection, err
	case "user":
		if user != nil {
			*user, err = d.id("user")
			return seenUser, err
		}
	case "key":
		*key, err = d.id("key")
		return seenKey, err
	case "kind":
		if d.line {
			_, err = d.str() // kind has read it
			return seenKind, inField("kind", err)
		}
	}
	return 0, nil
}

// keyLast gives the record added last its idempotency key.
func (d *decoder) keyLast(key string) {
	if key != "" {
		d.out.KeyLast(command.HashKey(d.principal, key))
	}
}

// signal reads a signal.
func (d *decoder) signal() error {
	s := command.Signal{Milli: entity.MilliPerWeight}
	var key string
	seen, err := d.object("a signal", func(name []byte) (bit int, err error) {
		switch string(name) {
		case "signal":
			s.Type, err = d.id("signal")
			return seenSignal, err
		case "weight":
			s.Milli, err = d.milli("weight", api.MinWeight)
			return seenWeight, err
		case "ts":
			s.At, err = d.ts()
			return seenTS, err
		}
		return d.common(name, &s.Item, &s.Collection, &s.User, &key)
	})
	if err == nil {
		err = d.missing(seen, seenItem|seenSignal)
	}
	if err == nil && s.At != 0 && d.checkTime != nil {
		if future := d.checkTime(s.At); future != nil { // a nil of its type is no error
			err = future
		}
	}
	if err != nil {
		return err
	}
	d.out.Signal(s)
	d.keyLast(key)
	return nil
}

// milli reads a weight of at least least and returns it in thousandths.
func (d *decoder) milli(field string, least float64) (uint64, error) {
	raw, err := d.number()
	if err != nil {
		return 0, inField(d.named(field), err)
	}
	if len(raw) == 1 { // a digit
		if n := uint64(raw[0] - '0'); n > 0 || least == 0 {
			return n * entity.MilliPerWeight, nil
		}
	}
	w, err := strconv.ParseFloat(text(raw), 64)
	if err != nil {
		return 0, badField(d.named(field), "%q is not a number", bounded(raw))
	}
	switch {
	case w < least:
		return 0, exceeds(badField(d.named(field), "%s is below the least, %v", bounded(raw), least), w, least, "")
	case w > api.MaxWeight:
		return 0, exceeds(badField(d.named(field), "%s is above the limit %v", bounded(raw), api.MaxWeight), w, api.MaxWeight, "")
	}
	return uint64(math.Round(w * entity.MilliPerWeight)), nil
}

// The moments that a signal can be given: the years 1 to 9999, as in RFC 3339.
var (
	minTS = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxTS = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC).UnixMilli()
)

// ts reads a signal's time: an RFC 3339 string or whole Unix milliseconds.
func (d *decoder) ts() (int64, error) {
	if d.peek() == '"' {
		v, err := d.str()
		if err != nil {
			return 0, inField(d.named("ts"), err)
		}
		t, err := time.Parse(time.RFC3339, text(v))
		if err != nil {
			return 0, badField(d.named("ts"), "%q is not a time of RFC 3339", bounded(v))
		}
		return d.checkTS(t.UnixMilli(), v)
	}
	raw, err := d.number()
	if err != nil {
		return 0, inField(d.named("ts"), err)
	}
	ms, err := strconv.ParseInt(text(raw), 10, 64)
	if err != nil {
		return 0, badField(d.named("ts"), "%q is not a whole number of milliseconds", bounded(raw))
	}
	return d.checkTS(ms, raw)
}

func (d *decoder) checkTS(ms int64, raw []byte) (int64, error) {
	if ms < minTS || ms > maxTS {
		return 0, badField(d.named("ts"), "%s is outside of the years 1 to 9999", bounded(raw))
	}
	return command.ObservedAt(ms), nil
}

// item reads an item. Every field but id and collection is an attribute; in a stream, but kind and key
// too.
func (d *decoder) item() error {
	var out command.Item
	var key string
	d.attrs.list, d.attrs.values = d.attrs.list[:0], d.attrs.values[:0]
	d.peek()
	start := d.pos
	seen, err := d.object("an item", func(name []byte) (bit int, err error) {
		switch string(name) {
		case "id":
			out.ID, err = d.id("id")
			return seenItem, err
		case "collection":
			return d.common(name, nil, &out.Collection, nil, nil)
		case "key", "kind":
			if d.line {
				return d.common(name, nil, nil, nil, &key)
			}
		}
		if err := d.member(&d.attrs, name); err != nil {
			return 0, inField(d.named(bounded(name)), err)
		}
		return seenAttribute, nil
	})
	if err != nil {
		return err
	}
	if n := d.pos - start; n > api.MaxItemBytes {
		p := api.NewProblem(api.CodeTooLarge, fmt.Sprintf("an item of %d bytes, limit %d", n, api.MaxItemBytes))
		p.Field = d.named("")
		return exceeds(p, float64(n), api.MaxItemBytes, "bytes")
	}
	if seen&seenItem == 0 {
		return badField(d.named("id"), "is missing")
	}
	if d.doc, err = d.join(d.doc[:0], d.attrs); err != nil {
		return inField(d.named(""), err)
	}
	out.Attrs = d.doc
	d.out.Item(out)
	d.keyLast(key)
	return nil
}

// embedding reads an embedding.
func (d *decoder) embedding() error {
	var e command.Embedding
	var key string
	seen, err := d.object("an embedding", func(name []byte) (bit int, err error) {
		if string(name) == "vector" {
			return seenVector, d.floats("vector")
		}
		return d.common(name, &e.Item, &e.Collection, nil, &key)
	})
	if err == nil {
		err = d.missing(seen, seenItem|seenVector)
	}
	if err != nil {
		return err
	}
	e.Vector = d.vector
	d.out.Embedding(e)
	d.keyLast(key)
	return nil
}

// floats reads an array of 1 to api.MaxDimension numbers into d.vector, each as the nearest 32-bit
// float.
func (d *decoder) floats(field string) error {
	d.vector = d.vector[:0]
	if err := d.open('['); err != nil {
		return inField(d.named(field), err)
	}
	for n := 0; ; n++ {
		more, err := d.more(n == 0, ']')
		if err != nil {
			return inField(d.named(field), err)
		}
		if !more {
			break
		}
		if n == api.MaxDimension {
			return badField(d.named(field), "has more than %d numbers", api.MaxDimension)
		}
		raw, err := d.number()
		if err != nil {
			return inField(d.named(field), err)
		}
		f, err := strconv.ParseFloat(text(raw), 32)
		if err != nil {
			return badField(d.named(field), "number %d, %s, is beyond what 32-bit floats hold", n, bounded(raw))
		}
		d.vector = binary.LittleEndian.AppendUint32(d.vector, math.Float32bits(float32(f)))
	}
	if len(d.vector) == 0 {
		return badField(d.named(field), "is empty; want 1 to %d numbers", api.MaxDimension)
	}
	return nil
}

// hardNeg reads a hard negative.
func (d *decoder) hardNeg() error {
	var h command.HardNeg
	var key string
	seen, err := d.object("a hard negative", func(name []byte) (bit int, err error) {
		if string(name) != "op" {
			return d.common(name, &h.Item, &h.Collection, &h.User, &key)
		}
		v, err := d.str()
		switch {
		case err != nil:
			return 0, inField(d.named("op"), err)
		case string(v) == api.OpHide:
			h.Hide = true
		case string(v) != api.OpUnhide:
			return 0, badField(d.named("op"), "%q is neither hide nor unhide", bounded(v))
		}
		return seenOp, nil
	})
	if err == nil {
		err = d.missing(seen, seenItem|seenUser|seenOp)
	}
	if err != nil {
		return err
	}
	d.out.HardNeg(h)
	d.keyLast(key)
	return nil
}

// schema reads the body of PUT /collections/{name}.
func decodeSchema(body []byte) (entity.Schema, error) {
	d := decoder{scanner: scanner{in: body}}
	var s entity.Schema
	seen, err := d.object("a collection", func(name []byte) (bit int, err error) {
		switch string(name) {
		case "half_life":
			s.HalfLife, err = d.duration("half_life")
			return seenHalfLife, err
		case "signals":
			s.Types, err = d.signalTypes()
			return seenSignals, err
		case "attributes":
			s.Attributes, err = d.attributes()
			return seenAttributes, err
		case "dimension":
			s.Dimension, err = d.dimension()
			return seenDimension, err
		}
		return 0, nil
	})
	switch {
	case err != nil:
		return s, err
	case seen&seenHalfLife == 0:
		return s, badField("half_life", "is missing")
	case seen&seenSignals == 0:
		return s, badField("signals", "is missing")
	}
	if err := d.end(); err != nil {
		return s, inField("", err)
	}
	if err := s.Validate(); err != nil {
		return s, badField("", "%v", err)
	}
	return s, nil
}

func (d *decoder) duration(field string) (time.Duration, error) {
	v, err := d.str()
	if err != nil {
		return 0, inField(field, err)
	}
	out, err := time.ParseDuration(text(v))
	if err != nil {
		return 0, badField(field, "%q is no duration; want one like 168h or 90m", bounded(v))
	}
	return out, nil
}

func (d *decoder) dimension() (int, error) {
	raw, err := d.number()
	if err != nil {
		return 0, inField("dimension", err)
	}
	n, err := strconv.ParseUint(text(raw), 10, 64)
	if err != nil || n < 1 || n > api.MaxDimension {
		return 0, badField("dimension", "%s is no whole number from 1 to %d", bounded(raw), api.MaxDimension)
	}
	return int(n), nil
}

// signalTypes reads {name: {weight}, …}.
func (d *decoder) signalTypes() (types []entity.SignalType, err error) {
	err = d.byName("signals", func(name string) error {
		t := entity.SignalType{Name: name}
		field := "signals." + bounded([]byte(name)) + ".weight"
		seen, err := d.object("a signal type", func(k []byte) (int, error) {
			if string(k) != "weight" {
				return 0, nil
			}
			var err error
			t.Milli, err = d.milli(field, 0)
			return seenWeight, err
		})
		if err == nil && seen&seenWeight == 0 {
			err = badField(field, "is missing")
		}
		types = append(types, t)
		return err
	})
	return types, err
}

// attributes reads {name: type, …}.
func (d *decoder) attributes() (attributes []entity.Attribute, err error) {
	err = d.byName("attributes", func(name string) error {
		field := "attributes." + bounded([]byte(name))
		v, err := d.str()
		if err != nil {
			return inField(field, err)
		}
		for _, t := range entity.AttributeTypes() {
			if t.String() == string(v) {
				attributes = append(attributes, entity.Attribute{Name: name, Type: t})
				return nil
			}
		}
		return badField(field, "%q is no type; %v are", bounded(v), entity.AttributeTypes())
	})
	return attributes, err
}

// byName reads an object whose keys are ids, each once; the rules of a schema bound how many.
func (d *decoder) byName(field string, value func(name string) error) error {
	seen := map[string]bool{}
	_, err := d.object("it", func(k []byte) (int, error) {
		name := strings.Clone(text(k))
		if err := checkID(field, k); err != nil {
			return 0, err
		}
		if seen[name] {
			return 0, badField(field+"."+bounded(k), "given twice")
		}
		seen[name] = true
		return seenAttribute, value(name)
	})
	return err
}

// decodeLine reads one line of a stream.
func (d *decoder) decodeLine(line []byte) error {
	read, err := d.kind(line)
	if err != nil {
		return err
	}
	if err := read(d); err != nil {
		return err
	}
	if err := d.end(); err != nil {
		d.out.DropLast()
		return inField("", err)
	}
	return nil
}

// kind reads the kind of a line, an object, and leaves the scanner before it.
func (d *decoder) kind(line []byte) (reader, error) {
	d.scanner = scanner{in: line}
	start := d.scanner
	if err := d.open('{'); err != nil {
		return nil, inField("", err)
	}
	for first := true; ; first = false {
		more, err := d.more(first, '}')
		if err == nil && !more {
			return nil, badField("kind", "is missing")
		}
		var k []byte
		if err == nil {
			k, err = d.key()
		}
		if err != nil {
			return nil, inField("", err)
		}
		if string(k) == "kind" {
			break
		}
		if err := d.skip(); err != nil {
			return nil, inField(bounded(k), err)
		}
	}
	v, err := d.str()
	if err != nil {
		return nil, inField("kind", err)
	}
	d.scanner = start
	switch string(v) {
	case api.KindSignal:
		return (*decoder).signal, nil
	case api.KindItem:
		return (*decoder).item, nil
	case api.KindEmbedding:
		return (*decoder).embedding, nil
	case api.KindHardNeg:
		return (*decoder).hardNeg, nil
	}
	return nil, badField("kind", "%q is none of signal, item, embedding and hardneg", bounded(v))
}

// skip steps over the next value. It is read again afterwards, so it may be taken for less than it is.
func (d *decoder) skip() error {
	d.doc = d.doc[:0]
	doc, err := d.canonical(d.doc)
	if err == nil {
		d.doc = doc
	}
	return err
}
