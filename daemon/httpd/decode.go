package httpd

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/query"
)

// readBody reads the whole body, at most limit bytes; a longer one is refused before it is read
// where its length is announced.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge("body", limit)
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

// ack returns what a write waits for. A weaker promise than was asked for is never given.
func (p params) ack(def string) (string, error) {
	switch v, ok := p["ack"]; {
	case !ok:
		return def, nil
	case v == api.AckQuorum, v == api.AckLeader:
		return v, nil
	case v == api.AckLocal:
		return "", badField("ack", "local is offered by POST /signals and POST /hardnegs alone; quorum and leader are here")
	default:
		return "", badField("ack", "%s is not offered; quorum and leader are", quoted(v))
	}
}

// flag returns the parameter name as a choice; it is false where it is not given.
func (p params) flag(name string) (bool, error) {
	switch v, ok := p[name]; {
	case !ok || v == "0" || v == "false":
		return false, nil
	case v == "" || v == "1" || v == "true":
		return true, nil
	default:
		return false, badField(name, "%s is neither true nor false", quoted(v))
	}
}

// diversity returns the parameter diversity, attribute:most; the zero Diversity where it is not given.
func (p params) diversity() (query.Diversity, error) {
	v, ok := p["diversity"]
	if !ok {
		return query.Diversity{}, nil
	}
	colon := strings.LastIndexByte(v, ':')
	if colon < 0 {
		return query.Diversity{}, badField("diversity", "%s has no number; want attribute:number", quoted(v))
	}
	n, err := params{"diversity": v[colon+1:]}.uint("diversity", 0, 1, api.MaxFeedLimit)
	if err != nil {
		return query.Diversity{}, err
	}
	return query.Diversity{Attribute: v[:colon], Most: int(n)}, checkID("diversity", []byte(v[:colon]))
}

// maxKeyBytes bounds an idempotency key.
const maxKeyBytes = 256

// idempotencyKey returns the header's key; empty: there is none.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header["Idempotency-Key"]
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", badField("Idempotency-Key", "given %d times", len(values))
	case values[0] == "" || len(values[0]) > maxKeyBytes:
		return "", exceeds(badField("Idempotency-Key", "has %d bytes; want 1 to %d", len(values[0]), maxKeyBytes), float64(len(values[0])), maxKeyBytes, "bytes")
	}
	return values[0], nil
}

// principal is whose idempotency keys a request uses: those of its API key.
func principal(r *http.Request) string {
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(key)
}

// checkID refuses what cannot name an item, a user, a signal or a collection.
func checkID(field string, v []byte) error {
	switch {
	case len(v) == 0:
		return badField(field, "is empty; an id has 1 to %d bytes", api.MaxIDBytes)
	case len(v) > api.MaxIDBytes:
		return exceeds(badField(field, "%q has %d bytes, limit %d", bounded(v), len(v), api.MaxIDBytes), float64(len(v)), api.MaxIDBytes, "bytes")
	case !utf8.Valid(v):
		return badField(field, "%q is not valid UTF-8", bounded(v))
	}
	return nil
}
