package httpd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ops"
)

// readBody reads the whole body, at most limit bytes; a longer one is refused before it is read
// where its length is announced.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	if n := r.ContentLength; n >= 0 {
		b := make([]byte, n)
		_, err := io.ReadFull(body, b)
		return b, bodyError(err)
	}
	b, err := io.ReadAll(body)
	return b, bodyError(err)
}

// bodyError says of a body that could not be read whole that it is the caller's doing.
func bodyError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return badField("", "the body ended early: %v", err)
}

// params are the query parameters of a request, each given at most once.
type params map[string]string

// parseParams reads a query; a parameter that the route does not know is refused, not ignored.
func parseParams(raw string, known []string) (params, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badField("", "the query is malformed: %s", bounded([]byte(err.Error())))
	}
	out := make(params, len(values))
	for name, v := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, badField(bounded([]byte(name)), "this route has no such parameter; it has %q", known)
		case len(v) > 1:
			return nil, badField(name, "given %d times", len(v))
		}
		out[name] = v[0]
	}
	return out, nil
}

// id returns the parameter name as an id, or def where it is not given.
func (p params) id(name, def string) (string, error) {
	v, ok := p[name]
	if !ok {
		return def, nil
	}
	return v, checkID(name, []byte(v))
}

// uint returns the parameter name as a number in [lo, hi], or def where it is not given.
func (p params) uint(name string, def, lo, hi uint64) (uint64, error) {
	v, ok := p[name]
	if !ok {
		return def, nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, badField(name, "%s is above the limit %d", quoted(v), hi)
	case err != nil:
		return 0, badField(name, "%s is not a whole number", quoted(v))
	case n < lo:
		return 0, exceeds(badField(name, "%d is below the least, %d", n, lo), float64(n), float64(lo), "")
	case n > hi:
		return 0, exceeds(badField(name, "%d is above the limit %d", n, hi), float64(n), float64(hi), "")
	}
	return n, nil
}

// read returns what state a read must reflect.
func (p params) read() (ops.Read, error) {
	var read ops.Read
	switch v, ok := p["consistency"]; {
	case !ok || v == api.ConsistencyLocal:
	case v == api.ConsistencyLinearizable:
		read.Linearizable = true
	default:
		return read, badField("consistency", "%s is neither local nor linearizable", quoted(v))
	}
	var err error
	read.MinIndex, err = p.uint("min_index", 0, 0, math.MaxUint64)
	return read, err
}

// checkWrite refuses what a write may ask for and this version does not give: a weaker promise must
// never be taken silently.
func checkWrite(r *request) error {
	if v, ok := r.params["ack"]; ok && v != api.AckQuorum {
		return badField("ack", "%s is not offered; quorum is", quoted(v))
	}
	if r.Header.Get("Idempotency-Key") != "" {
		return badField("Idempotency-Key", "idempotency keys are not offered")
	}
	return nil
}

// checkID refuses what cannot name an item, a user, a signal or a collection.
func checkID(field string, v []byte) error {
	switch {
	case len(v) == 0:
		return badField(field, "is empty; an id has 1 to %d bytes", api.MaxIDBytes)
	case len(v) > api.MaxIDBytes:
		return exceeds(badField(field, "%q has %d bytes, limit %d", bounded(v), len(v), api.MaxIDBytes), float64(len(v)), api.MaxIDBytes, "bytes")
	case !bytes.Equal(bytes.ToValidUTF8(v, nil), v):
		return badField(field, "%q is not valid UTF-8", bounded(v))
	}
	return nil
}

// inField turns an error of the scanner at a field's value into a problem that names the field.
func inField(field string, err error) error {
	if e, ok := errors.AsType[*syntaxError](err); ok {
		return badField(field, "%s", e.Error())
	}
	return err
}

// id reads the value of field as an id.
func (s *scanner) id(field string) (string, error) {
	v, err := s.str()
	if err != nil {
		return "", inField(field, err)
	}
	return string(v), checkID(field, v)
}

// The fields of a signal, as bits of what was seen.
const (
	seenItem = 1 << iota
	seenSignal
	seenCollection
	seenUser
	seenWeight
	seenTS
)

// decodeSignal reads the body of POST /signals: one object, in any order of its fields.
func decodeSignal(body []byte) (command.Signal, error) {
	out := command.Signal{Milli: 1000}
	s := scanner{in: body}
	if s.peek() == '[' {
		return out, badField("", "an array of signals is not taken; send one object a request")
	}
	if err := s.open('{'); err != nil {
		return out, inField("", err)
	}
	seen := 0
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return out, inField("", err)
		}
		if !more {
			break
		}
		k, err := s.key()
		if err != nil {
			return out, inField("", err)
		}
		bit := 0
		switch string(k) {
		case "item":
			bit = seenItem
			out.Item, err = s.id("item")
		case "signal":
			bit = seenSignal
			out.Type, err = s.id("signal")
		case "collection":
			bit = seenCollection
			out.Collection, err = s.id("collection")
		case "user":
			bit = seenUser
			out.User, err = s.id("user")
		case "weight":
			bit = seenWeight
			out.Milli, err = s.weight()
		case "ts":
			bit = seenTS
			out.At, err = s.ts()
		default:
			return out, badField(bounded(k), "a signal has no such field")
		}
		if err != nil {
			return out, err
		}
		if seen&bit != 0 {
			return out, badField(string(k), "given twice")
		}
		seen |= bit
	}
	if err := s.end(); err != nil {
		return out, inField("", err)
	}
	switch {
	case seen&seenItem == 0:
		return out, badField("item", "is missing")
	case seen&seenSignal == 0:
		return out, badField("signal", "is missing")
	}
	return out, nil
}

// weight reads a signal's weight and returns it in thousandths.
func (s *scanner) weight() (uint64, error) {
	raw, err := s.number()
	if err != nil {
		return 0, inField("weight", err)
	}
	w, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, badField("weight", "%q is not a number", bounded(raw))
	}
	switch {
	case w < api.MinWeight:
		return 0, exceeds(badField("weight", "%s is below the least, %v", bounded(raw), api.MinWeight), w, api.MinWeight, "")
	case w > api.MaxWeight:
		return 0, exceeds(badField("weight", "%s is above the limit %v", bounded(raw), api.MaxWeight), w, api.MaxWeight, "")
	}
	return uint64(math.Round(w * 1000)), nil
}

// The moments that a signal can be given: the years 1 to 9999, as in RFC 3339.
var (
	minTS = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxTS = time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC).UnixMilli()
)

// ts reads a signal's time: an RFC 3339 string or whole Unix milliseconds.
func (s *scanner) ts() (int64, error) {
	if s.peek() == '"' {
		v, err := s.str()
		if err != nil {
			return 0, inField("ts", err)
		}
		t, err := time.Parse(time.RFC3339, string(v))
		if err != nil {
			return 0, badField("ts", "%q is not a time of RFC 3339", bounded(v))
		}
		return checkTS(t.UnixMilli(), bounded(v))
	}
	raw, err := s.number()
	if err != nil {
		return 0, inField("ts", err)
	}
	ms, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, badField("ts", "%q is not a whole number of milliseconds", bounded(raw))
	}
	return checkTS(ms, bounded(raw))
}

func checkTS(ms int64, text string) (int64, error) {
	if ms < minTS || ms > maxTS {
		return 0, badField("ts", "%s is outside of the years 1 to 9999", text)
	}
	return command.ObservedAt(ms), nil
}

// decodeItems reads the body of POST /items: one object or an array of them. array tells which.
func decodeItems(body []byte) (items []command.Item, array bool, err error) {
	s := scanner{in: body}
	if s.peek() != '[' {
		it, err := s.item("")
		if err != nil {
			return nil, false, err
		}
		return []command.Item{it}, false, inField("", s.end())
	}
	if err := s.open('['); err != nil {
		return nil, true, inField("", err)
	}
	for first := true; ; first = false {
		more, err := s.more(first, ']')
		if err != nil {
			return nil, true, inField("", err)
		}
		if !more {
			break
		}
		if len(items) == api.MaxRecords {
			return nil, true, badField("", "the array has more than %d items", api.MaxRecords)
		}
		it, err := s.item(fmt.Sprintf("[%d]", len(items)))
		if err != nil {
			return nil, true, err
		}
		items = append(items, it)
	}
	if err := s.end(); err != nil {
		return nil, true, inField("", err)
	}
	if len(items) == 0 {
		return nil, true, badField("", "the array is empty")
	}
	return items, true, nil
}

// item reads one item. at is its place in an array, "" outside of one. Every field but id and
// collection is an attribute.
func (s *scanner) item(at string) (command.Item, error) {
	field := func(name string) string {
		if at == "" {
			return name
		}
		return at + "." + name
	}
	var out command.Item
	if err := s.open('{'); err != nil {
		return out, inField(at, err)
	}
	start := s.pos - 1
	var attrs members
	var hasID, hasCollection bool
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return out, inField(at, err)
		}
		if !more {
			break
		}
		k, err := s.key()
		if err != nil {
			return out, inField(at, err)
		}
		switch string(k) {
		case "id":
			if hasID {
				return out, badField(field("id"), "given twice")
			}
			hasID = true
			out.ID, err = s.id(field("id"))
		case "collection":
			if hasCollection {
				return out, badField(field("collection"), "given twice")
			}
			hasCollection = true
			out.Collection, err = s.id(field("collection"))
		default:
			if err = s.member(&attrs, k); err != nil {
				err = inField(field(bounded(k)), err)
			}
		}
		if err != nil {
			return out, err
		}
	}
	if n := s.pos - start; n > api.MaxItemBytes {
		p := api.NewProblem(api.CodeTooLarge, fmt.Sprintf("an item of %d bytes, limit %d", n, api.MaxItemBytes))
		p.Field = at
		return out, exceeds(p, float64(n), api.MaxItemBytes, "bytes")
	}
	if !hasID {
		return out, badField(field("id"), "is missing")
	}
	var err error
	out.Attrs, err = s.join(nil, attrs)
	return out, inField(at, err)
}
