package httpd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/replica"
)

// Bounds of a stream. Unsettled are the parts under way, one that is read, and what the connection
// buffers: some 2 MiB.
const (
	partBytes = 128 << 10 // encoded, of one part; a record may go beyond
	partsMax  = 8         // begun and not settled

	// overloadPoll is how often a part is offered again that found a queue full. The stream is not read
	// meanwhile: that is its backpressure.
	overloadPoll = 5 * time.Millisecond
)

// ingest takes records, one a line, and acknowledges them, on one request in both directions at once.
func (s *Server) ingest(w http.ResponseWriter, r *request) error {
	ack, err := r.params.ack(s.opts.Ack)
	if err != nil {
		return err
	}
	if r.Header.Get("Idempotency-Key") != "" {
		return badField("Idempotency-Key", "a stream takes none; its lines have a key each")
	}
	control := http.NewResponseController(w)
	if err := control.EnableFullDuplex(); err != nil {
		return err
	}
	in := newStreamBody(r.Body, control, s.opts.StreamIdle)
	defer context.AfterFunc(s.draining, func() { in.interrupt(errStopping) })()
	return s.lead(r, func() error {
		st := stream{s: s, w: w, control: control, body: in, ack: ack}
		st.d.principal, st.d.line, st.d.checkTime = principal(r.Request), true, s.ops.CheckTime
		st.run(r)
		return nil
	}, func(l ops.Leader) error {
		return s.relayStream(w, r, l, in)
	})
}

// streamBody reads the lines of a client, each Read within a bound of its own, until it is
// interrupted.
type streamBody struct {
	src     io.Reader
	control *http.ResponseController
	idle    time.Duration

	mu struct {
		sync.Mutex
		cause error // why reading ended; nil: it did not
	}
}

func newStreamBody(src io.Reader, control *http.ResponseController, idle time.Duration) *streamBody {
	return &streamBody{src: src, control: control, idle: idle}
}

// Read implements io.Reader. After an interrupt, and after too long a silence, the error is the cause.
func (b *streamBody) Read(p []byte) (int, error) {
	if err := b.arm(); err != nil {
		return 0, err
	}
	n, err := b.src.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.interrupt(api.NewProblem(api.CodeIdle, "nothing came for "+b.idle.String()))
		err = b.cause()
	}
	return n, err
}

// arm gives the next read its time.
func (b *streamBody) arm() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.cause != nil {
		return b.mu.cause
	}
	return b.control.SetReadDeadline(time.Now().Add(b.idle))
}

// interrupt ends reading, a read under way included. The first cause counts.
func (b *streamBody) interrupt(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.cause == nil {
		b.mu.cause = cause
		_ = b.control.SetReadDeadline(time.Unix(1, 0)) // an error means that the connection is gone
	}
}

func (b *streamBody) cause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.cause
}

// stream is one request of POST /ingest on the leader.
//
// The handler's goroutine reads lines, decodes them, and begins parts in their order; another one
// settles them in the same order and writes the acknowledgements.
type stream struct {
	s       *Server
	w       http.ResponseWriter
	control *http.ResponseController
	body    *streamBody
	ack     string

	in    *bufio.Reader
	d     decoder
	line  uint64     // lines read
	parts chan *part // begun, to be settled
	free  chan *part // settled, for their memory

	// What the settling goroutine knows; the handler's reads it after the end of that one.
	end   api.StreamEnd
	index uint64 // of the newest entry acknowledged
	gone  bool   // the client does not read any more
}

// part is a run of lines that travel as one write.
type part struct {
	out     command.Builder
	lines   []uint64          // of each record
	refused []api.LineRefusal // lines that did not become records
	last    uint64            // the last line of the part
	wait    func() (ops.Written, error)
	err     error // it was not begun; nothing happened
}

// errEnded interrupts the reading of a stream whose end is decided.
var errEnded = errors.New("the stream has ended")

// run serves the stream to its end. By then everything that was begun is settled.
func (st *stream) run(r *request) {
	st.in = bufio.NewReaderSize(st.body, api.MaxLineBytes)
	if r.Header.Get("Expect") != "" {
		_, _ = st.in.Peek(1) // says "100 Continue"; an error comes again
	}
	if r.marked {
		_, _ = st.in.ReadSlice('\n') // see relayStream
	}
	st.parts, st.free = make(chan *part, partsMax), make(chan *part, partsMax+2)
	st.end.Refused = new(uint64(0))
	if err := st.open(); err != nil {
		return
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		for p := range st.parts {
			st.settle(p)
		}
	}()
	err := st.read(r.Context())
	close(st.parts)
	<-settled
	st.finish(err)
}

// finish writes the last line.
func (st *stream) finish(err error) {
	if st.gone {
		return
	}
	switch p, said := errors.AsType[*api.Problem](err); {
	case st.end.Problem != nil: // what was settled knows better
	case err == nil:
		st.end.Done = true
	case said:
		st.end.Problem = p
	case errors.Is(err, errStopping):
		st.end.Problem = problem(err)
	default:
		return // the client is gone
	}
	_ = st.write(st.end)
}

// read makes parts of the lines until they end. A part goes when it is full, or when the next line is
// not there yet: a lone line waits for nothing, and while parts are under way lines gather.
func (st *stream) read(ctx context.Context) error {
	p := st.newPart()
	for {
		err := st.readLine(p)
		if err != nil && p.last == 0 {
			return ended(err)
		}
		if err == nil && p.out.Len() < partBytes && p.out.Count() < api.MaxRecords && len(p.refused) < api.MaxRecords && st.ready() {
			continue
		}
		st.begin(ctx, p)
		st.parts <- p // waits while as many are under way as may be
		if err != nil {
			return ended(err)
		}
		if p.err != nil {
			return errEnded
		}
		p = st.newPart()
	}
}

// ended says that the end of the lines is no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// ready reports whether a whole line can be read without waiting.
func (st *stream) ready() bool {
	b, _ := st.in.Peek(st.in.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

func (st *stream) newPart() *part {
	select {
	case p := <-st.free:
		p.out.Reset()
		p.lines, p.refused, p.last, p.wait, p.err = p.lines[:0], nil, 0, nil, nil
		return p
	default:
		return &part{}
	}
}

// readLine reads one line into p. io.EOF: there is none; a last line need not end.
func (st *stream) readLine(p *part) error {
	line, err := st.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return st.skipLine(p)
	}
	if len(line) == 0 || err != nil && !errors.Is(err, io.EOF) {
		return err // half a line of a client that is gone is none
	}
	st.line++
	p.last = st.line
	st.d.out = p.out
	if err := st.d.decodeLine(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
		p.refuse(st.line, problem(err))
	} else {
		p.lines = append(p.lines, st.line)
	}
	p.out = st.d.out
	return nil
}

// skipLine refuses a line that is too long.
func (st *stream) skipLine(p *part) (err error) {
	for err = bufio.ErrBufferFull; errors.Is(err, bufio.ErrBufferFull); {
		_, err = st.in.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	st.line++
	p.last = st.line
	p.refuse(st.line, tooLarge("line", api.MaxLineBytes))
	return nil
}

func (p *part) refuse(line uint64, why *api.Problem) {
	p.refused = append(p.refused, api.LineRefusal{Line: line, Code: why.Code, Detail: why.Detail})
}

// begin puts p into the log, and waits while there is no room for it.
func (st *stream) begin(ctx context.Context, p *part) {
	if p.out.Count() == 0 {
		return
	}
	w := ops.Write{Data: p.out.Bytes(), Ack: st.ack}
	for {
		if p.wait, p.err = st.s.ops.Begin(ctx, w); p.err == nil {
			return
		}
		if _, full := errors.AsType[*replica.OverloadedError](p.err); !full || st.body.cause() != nil {
			return
		}
		if !waitUntil(ctx, time.Now().Add(time.Hour), overloadPoll) {
			return
		}
	}
}

// settle waits for p and acknowledges it. After the first part that failed nothing is acknowledged any
// more; whether something of what follows was taken nevertheless, the last line says.
func (st *stream) settle(p *part) {
	var res ops.Written
	err := p.err
	if err == nil && p.wait != nil {
		res, err = p.wait()
	}
	switch {
	case st.end.Problem != nil:
		taken := err == nil && p.wait != nil || err != nil && problem(err).Effect != api.EffectNone
		if taken && st.end.Problem.Effect == api.EffectNone {
			st.end.Problem = api.NewProblem(api.CodeOutcomeUnknown, st.end.Problem.Detail+"; of what came later, some may have been taken")
		}
		return
	case err != nil:
		st.end.Problem = st.withLeader(problem(err))
		st.body.interrupt(errEnded)
		return
	}
	ack := api.Ack{Acked: p.last, Index: max(res.ID.Index, st.index), Refused: p.refused}
	for _, f := range res.Refused {
		ack.Refused = append(ack.Refused, api.LineRefusal{Line: p.lines[f.Record], Code: api.Code(f.Code), Detail: f.Detail})
	}
	slices.SortFunc(ack.Refused, func(a, b api.LineRefusal) int { return cmp.Compare(a.Line, b.Line) })
	lines, refused := p.last-st.end.Acked, uint64(len(ack.Refused))
	st.s.metrics.lines.Add(float64(lines))
	st.s.metrics.refusedLines.Add(float64(refused))
	st.end.Acked = p.last
	*st.end.Refused += refused
	st.index = ack.Index
	if !st.gone && st.write(ack) != nil {
		st.gone = true
		st.body.interrupt(errEnded)
	}
	select {
	case st.free <- p:
	default:
	}
}

// withLeader names who leads now, to a client that was told that this member does not.
func (st *stream) withLeader(p *api.Problem) *api.Problem {
	if l, err := st.s.ops.Leader(); err == nil && p.Code == api.CodeNotLeader {
		p.Leader = l.Name
	}
	return p
}

// write sends one line.
func (st *stream) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of our own
	}
	if err := st.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	if _, err := st.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return st.control.Flush()
}

// open sends the header: the client may wait for it before it sends a line. The connection is of no
// use afterwards, as it may hold lines that nobody read.
func (st *stream) open() error {
	h := st.w.Header()
	h.Set("Content-Type", api.NDJSONType)
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	h.Set("X-Accel-Buffering", "no")
	st.w.WriteHeader(http.StatusOK)
	if err := st.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	return st.control.Flush()
}
