package httpd

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/peer"
)

// pathExchange is where members exchange outboxes.
const pathExchange = "/cluster/reconcile/snapshot"

// orLocal is h for a route whose records this member may take by itself: with ack=local it does.
func (s *Server) orLocal(read reader, h handler) handler {
	return func(w http.ResponseWriter, r *request) error {
		if r.params["ack"] != api.AckLocal {
			return h(w, r)
		}
		return s.take(w, r, read)
	}
}

// take takes records here and now, whoever leads.
func (s *Server) take(w http.ResponseWriter, r *request, read reader) error {
	d := &decoder{principal: principal(r.Request)}
	array, err := d.decodeRecords(r.body, read)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r.Request)
	if err != nil {
		return err
	}
	data := d.out.Bytes()
	if key != "" {
		data = d.out.Keyed(command.HashKey(principal(r.Request), key))
	}
	taken, err := s.ops.Take(data)
	if err != nil {
		return err
	}
	if !array && len(taken.Refused) > 0 {
		return refused(taken.Refused[0])
	}
	out := api.Taken{Ack: api.AckLocal, Accepted: taken.Accepted, Refused: []api.Refusal{}}
	if taken.ID.Seq != 0 {
		out.Origin, out.Sequence = new(taken.ID.Origin.String()), new(taken.ID.Seq)
	}
	for _, f := range taken.Refused {
		out.Refused = append(out.Refused, api.Refusal{Record: f.Record, Code: api.Code(f.Code), Detail: f.Detail})
	}
	w.Header()[api.HeaderAck] = []string{api.AckLocal}
	return writeJSON(w, http.StatusAccepted, out)
}

// postReconcile exchanges outboxes with the member that the body names.
func (s *Server) postReconcile(w http.ResponseWriter, r *request) error {
	var req api.ReconcileRequest
	if err := decodeVerb(r.body, &req, "region", "dry_run", "operation_id"); err != nil {
		return err
	}
	if req.Region == "" {
		return badField("region", "is missing: the name of the member to exchange with")
	}
	if err := extend(w, api.ReconcileTimeoutMS*time.Millisecond); err != nil {
		return err
	}
	started, err := s.ops.Reconcile(req)
	err = s.answerVerb(w, r, started, err, false)
	if unreached, ok := errors.AsType[*unreachedError](err); ok {
		return api.NewProblem(api.CodeMemberUnreached, fmt.Sprintf("%s was not reached at %s: %s", req.Region, unreached.Addr, reasonOf(unreached.Err)))
	}
	if lost, ok := errors.AsType[*lostError](err); ok && req.DryRun { // it would have changed nothing
		return silent(req.Region, lost)
	}
	return err
}

// exchange is the other side of a reconcile: it takes its own snapshot, then merges the one that comes,
// and answers with the first.
func (s *Server) exchange(w http.ResponseWriter, r *request) error {
	if !r.marked {
		return api.NewProblem(api.CodeUnauthorized, "this route is for members: it needs the peer credential")
	}
	dry, err := r.params.flag("dry_run")
	if err != nil {
		return err
	}
	if err := extend(w, api.ReconcileTimeoutMS*time.Millisecond); err != nil {
		return err
	}
	held, limit, err := s.ops.Held()
	if err != nil {
		return err
	}
	theirs, _, err := readExchange(r.Body, limit)
	if err != nil {
		return bodyOf(err)
	}
	merged, took, err := s.ops.Merge(theirs, dry)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	w.WriteHeader(http.StatusOK)
	answer := api.Exchange{ElapsedMS: (took + time.Millisecond - 1).Milliseconds(), OpsApplied: merged.Ops}
	for _, origin := range merged.Forked {
		answer.Forked = append(answer.Forked, origin.String())
	}
	_ = writeExchange(w, held, answer) // an error means that the caller is gone
	return nil
}

// bodyOf is the error of a body that could not be read.
func bodyOf(err error) error {
	if e, ok := errors.AsType[*outbox.SnapshotError](err); ok {
		return badField("snapshot", "%s", e.Detail)
	}
	if _, newer := errors.AsType[*command.UnknownKindError](err); newer {
		return badField("snapshot", "%v", err)
	}
	return bodyError(err)
}

const (
	exchangeOpen = `{"snapshot":"`
	// maxExchangeRest bounds what follows the snapshot.
	maxExchangeRest = 1 << 20
)

// writeExchange writes rest with the snapshot of what is held, as it is encoded: it is never whole in
// memory.
func writeExchange(w io.Writer, held []command.Outbox, rest api.Exchange) error {
	if _, err := io.WriteString(w, exchangeOpen); err != nil {
		return err
	}
	encoder := base64.NewEncoder(base64.StdEncoding, w)
	if err := errors.Join(outbox.WriteSnapshot(encoder, held), encoder.Close()); err != nil {
		return err
	}
	b, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, `"`+strings.TrimPrefix(string(b), `{"snapshot":null`)+"\n")
	return err
}

// readExchange reads what writeExchange wrote. Errors: *outbox.SnapshotError, *command.UnknownKindError,
// those of r.
func readExchange(r io.Reader, limit int64) ([]command.Outbox, api.Exchange, error) {
	var rest api.Exchange
	bad := func(format string, args ...any) ([]command.Outbox, api.Exchange, error) {
		return nil, rest, &outbox.SnapshotError{Detail: fmt.Sprintf(format, args...)}
	}
	in := bufio.NewReader(r)
	open := make([]byte, len(exchangeOpen))
	if _, err := io.ReadFull(in, open); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err == nil && string(open) != exchangeOpen {
		return bad("want an object that begins with the field snapshot")
	} else if err != nil {
		return nil, rest, err
	}
	text := &untilQuote{in: in}
	held, err := outbox.ReadSnapshot(base64.NewDecoder(base64.StdEncoding, text), limit)
	if corrupt, ok := errors.AsType[base64.CorruptInputError](err); ok {
		return bad("%v", corrupt)
	}
	if err != nil {
		return nil, rest, err
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(text, 8)); err != nil || n == 8 || !text.ended {
		return bad("something follows its end")
	}
	tail, err := io.ReadAll(io.LimitReader(in, maxExchangeRest))
	if err != nil {
		return nil, rest, err
	}
	if err := json.Unmarshal(append([]byte(`{"snapshot":null`), tail...), &rest); err != nil {
		return bad("what follows it: %v", err)
	}
	return held, rest, nil
}

// untilQuote reads up to a quotation mark, and past it.
type untilQuote struct {
	in    *bufio.Reader
	rest  []byte // of the buffer of in
	ended bool
}

func (q *untilQuote) Read(p []byte) (int, error) {
	for len(q.rest) == 0 {
		if q.ended {
			return 0, io.EOF
		}
		b, err := q.in.ReadSlice('"')
		switch {
		case err == nil:
			b, q.ended = b[:len(b)-1], true
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		}
		q.rest = b
	}
	n := copy(p, q.rest)
	q.rest = q.rest[n:]
	return n, nil
}

// Exchange implements ops.Exchanger.
func (c *Client) Exchange(ctx context.Context, cluster, addr string, dry bool, held []command.Outbox, limit int64) (ops.Exchanged, error) {
	party := peer.Party{Addr: addr}
	if err := c.opts.Faults.Pass(ctx, party); err != nil {
		return ops.Exchanged{}, &unreachedError{Addr: addr, Err: err}
	}
	reached := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached = true }})
	body, end := io.Pipe()
	var writer sync.WaitGroup
	defer writer.Wait()
	defer body.Close() // ends the writer
	writer.Go(func() { end.CloseWithError(writeExchange(end, held, api.Exchange{})) })
	at := &url.URL{Path: pathExchange, RawQuery: url.Values{"dry_run": {strconv.FormatBool(dry)}}.Encode()}
	header := http.Header{api.HeaderCluster: {cluster}, "Content-Type": {"application/json"}}
	req, err := c.request(ctx, addr, http.MethodPost, at, header, body)
	if err != nil {
		return ops.Exchanged{}, &unreachedError{Addr: addr, Err: err}
	}
	resp, err := c.streams.RoundTrip(req)
	if err != nil && !reached {
		return ops.Exchanged{}, &unreachedError{Addr: addr, Err: err}
	}
	if err != nil {
		return ops.Exchanged{}, &lostError{Addr: addr, Err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		a, err := readAnswer(resp, addr)
		if err != nil {
			return ops.Exchanged{}, err
		}
		if p, ok := a.problem(); ok {
			return ops.Exchanged{}, p
		}
		return ops.Exchanged{}, &lostError{Addr: addr, Err: fmt.Errorf("HTTP %d", a.status)}
	}
	theirs, answer, err := readExchange(&cuttable{resp.Body, c.opts.Faults, party}, limit)
	if err != nil {
		return ops.Exchanged{}, &lostError{Addr: addr, Err: err}
	}
	out := ops.Exchanged{Held: theirs, Took: time.Duration(answer.ElapsedMS) * time.Millisecond, Ops: answer.OpsApplied}
	for _, text := range answer.Forked {
		if origin, err := ident.ParseIncarnation(text); err == nil {
			out.Forked = append(out.Forked, origin)
		}
	}
	return out, nil
}

// outboxProblem is problem for the errors of an outbox; nil: it is none of them.
func outboxProblem(err error) *api.Problem {
	if e, ok := errors.AsType[*outbox.UnsureError](err); ok {
		return api.NewProblem(api.CodeOutcomeUnknown, e.Error())
	}
	if e, ok := errors.AsType[*outbox.FullError](err); ok {
		p := api.NewProblem(api.CodeOutboxFull, e.Error())
		p.RetryAfterMS = e.RetryAfter.Milliseconds()
		return exceeds(p, float64(e.Bytes), float64(e.Limit), "bytes")
	}
	if e, ok := errors.AsType[*outbox.TooLargeError](err); ok {
		return exceeds(api.NewProblem(api.CodeTooLarge, e.Error()), float64(e.Bytes), float64(e.Limit), "bytes")
	}
	if e, ok := errors.AsType[*outbox.FailedError](err); ok {
		return api.NewProblem(api.CodeOutboxFailed, e.Error())
	}
	if e, ok := errors.AsType[*outbox.KeyMismatchError](err); ok {
		return api.NewProblem(api.CodeKeyMismatch, e.Error())
	}
	if e, ok := errors.AsType[*ops.SelfError](err); ok {
		return badField("region", "%s", e.Error())
	}
	if errors.Is(err, ops.ErrNoOutbox) || errors.Is(err, outbox.ErrClosed) {
		return api.NewProblem(api.CodeNotReady, err.Error())
	}
	return nil
}
