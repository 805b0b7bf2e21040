package tui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tidaldb/tidal/tui/viewmodel"
)

// recordingSchema names the format of a recording: lines of JSON, first a header, then a sample each.
const recordingSchema = "tidalctl.recording/v1"

// header is the first line of a recording.
type header struct {
	Schema     string    `json:"schema"`
	StartedAt  time.Time `json:"started_at"`
	IntervalMS int64     `json:"interval_ms"`
	Endpoints  []string  `json:"endpoints"`
}

// maxRecordingLine bounds one line: a status of thousands of members fits.
const maxRecordingLine = 16 << 20

// RecordingError refuses a recording.
type RecordingError struct {
	Line   int
	Detail string
}

func (e *RecordingError) Error() string {
	return fmt.Sprintf("line %d of the recording: %s", e.Line, e.Detail)
}

// Recorder is a Source that keeps every sample of another. Make it with Record.
type Recorder struct {
	source Source

	mu struct {
		sync.Mutex
		w io.Writer // nil after the first error: half a line must be the last one
	}
}

// Record returns a source that writes each sample of source to w, a line each and in one piece, after
// a header. A line that cannot be written is told once, and ends the recording, not the looking.
func Record(source Source, w io.Writer, started time.Time, interval time.Duration, endpoints []string) (*Recorder, error) {
	r := &Recorder{source: source}
	r.mu.w = w
	return r, r.write(header{recordingSchema, started.UTC(), interval.Milliseconds(), endpoints})
}

// Look asks the source and keeps what it says.
func (r *Recorder) Look(ctx context.Context) (viewmodel.Sample, error) {
	sample, err := r.source.Look(ctx)
	if ctx.Err() != nil { // cut short: it says nothing of the cluster
		return sample, err
	}
	return sample, errors.Join(err, r.write(sample))
}

func (r *Recorder) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a line of the recording: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.w == nil {
		return nil
	}
	if _, err := r.mu.w.Write(append(b, '\n')); err != nil {
		r.mu.w = nil
		return fmt.Errorf("the recording ended: %w", err)
	}
	return nil
}

// Recording is what Record wrote.
type Recording struct {
	StartedAt time.Time
	Interval  time.Duration
	Endpoints []string
	Samples   []viewmodel.Sample
}

// ReadRecording reads a recording whole. A last line that is cut off, as one is whose writer was
// killed, is left out. Errors: *RecordingError, and those of r.
func ReadRecording(r io.Reader) (Recording, error) {
	var rec Recording
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxRecordingLine)
	var broken *RecordingError // of the line before: it may be the last
	for n := 1; lines.Scan(); n++ {
		if broken != nil {
			return rec, broken
		}
		if n == 1 {
			var h header
			if err := json.Unmarshal(lines.Bytes(), &h); err != nil || h.Schema != recordingSchema {
				return rec, &RecordingError{n, "want a header with the schema " + recordingSchema}
			}
			rec.StartedAt, rec.Endpoints = h.StartedAt, h.Endpoints
			rec.Interval = time.Duration(h.IntervalMS) * time.Millisecond
			continue
		}
		var s viewmodel.Sample
		switch err := json.Unmarshal(lines.Bytes(), &s); {
		case err != nil:
			broken = &RecordingError{n, err.Error()}
		case s.At.IsZero():
			return rec, &RecordingError{n, "the sample has no time"}
		case len(rec.Samples) > 0 && s.At.Before(rec.Samples[len(rec.Samples)-1].At):
			s.At = rec.Samples[len(rec.Samples)-1].At // a clock that was set back
			fallthrough
		default:
			rec.Samples = append(rec.Samples, s)
		}
	}
	if err := lines.Err(); err != nil {
		return rec, fmt.Errorf("read the recording: %w", err)
	}
	if len(rec.Samples) == 0 {
		return rec, &RecordingError{1, "it has no samples"}
	}
	if rec.Interval <= 0 {
		rec.Interval = time.Second
	}
	return rec, nil
}
