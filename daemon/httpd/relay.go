package httpd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
)

// relayStream passes a stream of records on to the leader, and its acknowledgements back, as they
// come. Errors are those of lead: nothing of the stream was read then. After that, what goes wrong is
// said in the last line.
//
// The leader answers before it reads, but net/http sends the header of a request together with the
// first bytes of its body: so a relayed stream begins with an empty line, which the leader drops.
func (s *Server) relayStream(w http.ResponseWriter, r *request, l ops.Leader, in *streamBody) error {
	ctx, stop := follow(r.Context(), l, s.ops.Leader)
	defer stop()
	in.idle = s.opts.StreamIdle + 10*time.Second // the leader's clock runs out first
	body := &gatedBody{src: in, ctx: ctx, opened: make(chan struct{})}
	resp, err := s.client.openStream(ctx, s.ops.Cluster().String(), l.HTTPAddr, r.Request, io.MultiReader(strings.NewReader("\n"), body))
	if err != nil {
		s.metrics.forwarded(nil, err)
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		a, err := readAnswer(resp, l.HTTPAddr)
		s.metrics.forwarded(a, err)
		switch {
		case err != nil:
			return err
		case a.status == http.StatusMisdirectedRequest:
			return errNotLeader
		}
		relay(w, a)
		return nil
	}
	s.metrics.forwarded(&answer{status: resp.StatusCode}, nil)
	relayHeader(w.Header(), resp.Header)
	st := stream{w: w, control: in.control}
	if st.open() != nil {
		return nil
	}
	close(body.opened)
	st.relay(ctx, l, resp.Body, in)
	in.interrupt(errEnded)
	return nil
}

// relay passes lines on until the last one.
func (st *stream) relay(ctx context.Context, l ops.Leader, from io.Reader, in *streamBody) {
	acks := bufio.NewReader(from)
	for {
		line, err := acks.ReadBytes('\n')
		if err != nil {
			st.end.Problem = problem(&lostError{Addr: l.HTTPAddr, Err: err})
			cause := in.cause()
			if moved, ok := errors.AsType[*movedError](context.Cause(ctx)); ok {
				cause = moved
			}
			if cause != nil {
				st.end.Problem.Detail = cause.Error() + "; of what is not acknowledged, some may have been taken"
			}
			_ = st.write(st.end)
			return
		}
		var seen api.StreamEnd // what it shares with an acknowledgement, and whether it is one
		if err := json.Unmarshal(line, &seen); err == nil {
			st.end.Acked = seen.Acked
		}
		if st.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout)) != nil {
			return
		}
		if _, err := st.w.Write(line); err != nil || st.control.Flush() != nil {
			return
		}
		if seen.Done || seen.Problem != nil {
			return
		}
	}
}

// gatedBody is not read before it is opened: until then the client's lines can go elsewhere.
type gatedBody struct {
	src    *streamBody
	ctx    context.Context
	opened chan struct{} // closed: it is
}

func (b *gatedBody) Read(p []byte) (int, error) {
	select {
	case <-b.opened:
		return b.src.Read(p)
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
}
