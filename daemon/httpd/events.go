package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// streamWriteTimeout is how long the reader of a stream may take to accept what is written: one that
// does not read is cut off, and may come back with the last id that it has.
const streamWriteTimeout = 10 * time.Second

// errHeartbeat ends a wait for the next event.
var errHeartbeat = errors.New("time for a heartbeat")

// events answers what this member saw: a page, or with follow everything that comes, as one JSON object
// a line or as server-sent events.
func (s *Server) events(w http.ResponseWriter, r *request) error {
	limit, err := r.params.uint("limit", api.DefaultEventsLimit, 0, api.MaxEventsLimit)
	if err != nil {
		return err
	}
	follow, err := r.params.flag("follow")
	if err != nil {
		return err
	}
	after := r.params["after"]
	if last := r.Header.Get("Last-Event-ID"); last != "" { // an EventSource that was cut off resumes
		after = last
	}
	lines := eventLines{w: w, sse: accepts(r.Request, api.EventStreamType)}
	if follow {
		return s.followEvents(r, lines, after, int(limit))
	}
	events, err := s.ops.Events(after, int(limit))
	if err != nil {
		return err
	}
	lines.begin()
	_ = lines.write(events...) // an error means that the caller is gone
	return nil
}

func (s *Server) followEvents(r *request, lines eventLines, after string, limit int) error {
	stream, err := s.ops.FollowEvents(after, limit)
	if err != nil {
		return err
	}
	defer stream.Close()
	control := http.NewResponseController(lines.w)
	// The whole request was read; what bounds a request does not bound its stream.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	lines.begin()
	for batch := []api.Event(nil); ; {
		if err := control.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
			return nil
		}
		if lines.write(batch...) != nil || control.Flush() != nil {
			return nil // the reader is gone, or does not read
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), s.opts.Heartbeat, errHeartbeat)
		batch, err = stream.Next(ctx)
		cancel()
		switch {
		case errors.Is(err, errHeartbeat):
			batch = []api.Event{stream.Heartbeat()}
		case err != nil: // the caller left, or this member is stopping and has told everything
			return nil
		}
	}
}

// accepts reports whether the caller asks for a media type by name.
func accepts(r *http.Request, media string) bool {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			if got, _, err := mime.ParseMediaType(part); err == nil && got == media {
				return true
			}
		}
	}
	return false
}

// eventLines writes events in one of the two shapes of a stream.
type eventLines struct {
	w   http.ResponseWriter
	sse bool
}

func (l eventLines) begin() {
	h := l.w.Header()
	h.Set("Content-Type", api.NDJSONType)
	if l.sse {
		h.Set("Content-Type", api.EventStreamType)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that gathers would turn the stream into a page
	l.w.WriteHeader(http.StatusOK)
}

// write sends events in one piece. A heartbeat is a comment among server-sent events.
func (l eventLines) write(events ...api.Event) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, e := range events {
		if l.sse {
			if e.Kind == api.EventHeartbeat {
				b.WriteString(": heartbeat\n\n")
				continue
			}
			b.WriteString("id: " + e.ID + "\ndata: ")
		}
		if err := enc.Encode(e); err != nil { // our own type cannot fail
			panic(err)
		}
		if l.sse {
			b.WriteByte('\n')
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := l.w.Write(b.Bytes())
	return err
}
