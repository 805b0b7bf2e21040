package httpd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ops"
)

func (s *Server) postSignals(w http.ResponseWriter, r *request) error {
	if err := checkWrite(r); err != nil {
		return err
	}
	signal, err := decodeSignal(r.body)
	if err != nil {
		return err
	}
	res, err := s.ops.Write(r.Context(), command.Write{Records: []command.Record{signal}})
	if err != nil {
		return err
	}
	setWritten(w.Header(), res)
	if len(res.Refused) > 0 {
		return refused(res.Refused[0])
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) postItems(w http.ResponseWriter, r *request) error {
	if err := checkWrite(r); err != nil {
		return err
	}
	items, array, err := decodeItems(r.body)
	if err != nil {
		return err
	}
	records := make([]command.Record, len(items))
	for i := range items {
		records[i] = items[i]
	}
	res, err := s.ops.Write(r.Context(), command.Write{Records: records})
	if err != nil {
		return err
	}
	setWritten(w.Header(), res)
	status := http.StatusOK
	if !array {
		if len(res.Refused) > 0 {
			return refused(res.Refused[0])
		}
		if res.Created {
			status = http.StatusCreated
		}
	}
	return writeJSON(w, status, written(res))
}

// setWritten says what an acknowledged write promises.
func setWritten(h http.Header, res ops.Written) {
	setReflected(h, res.ID.Term, res.ID.Index)
	h[api.HeaderAck] = []string{api.AckQuorum}
	h[api.HeaderReplicatedTo] = []string{strconv.Itoa(res.Replicated)}
	if len(res.Pending) > 0 {
		h[api.HeaderPending] = []string{strings.Join(res.Pending, ",")}
	}
}

func written(res ops.Written) api.Written {
	out := api.Written{
		Index: res.ID.Index, Term: res.ID.Term, Ack: api.AckQuorum,
		ReplicatedTo: res.Replicated, Pending: append([]string{}, res.Pending...),
		Refused: make([]api.Refusal, 0, len(res.Refused)),
	}
	for _, r := range res.Refused {
		out.Refused = append(out.Refused, api.Refusal{Record: r.Record, Code: api.Code(r.Code), Detail: r.Detail})
	}
	return out
}

// refused makes the problem of a single record that the state did not take.
func refused(r command.Refusal) error { return api.NewProblem(api.Code(r.Code), r.Detail) }

func (s *Server) getItem(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if err := checkID("id", []byte(id)); err != nil {
		return err
	}
	collection, err := r.params.id("collection", api.DefaultCollection)
	if err != nil {
		return err
	}
	read, err := r.params.read()
	if err != nil {
		return err
	}
	item, ref, err := s.ops.Item(r.Context(), collection, id, read)
	if err != nil {
		return err
	}
	setReflected(w.Header(), ref.Term, ref.AppliedIndex)
	return writeJSON(w, http.StatusOK, item)
}

func (s *Server) getFeed(w http.ResponseWriter, r *request) error {
	if _, err := r.params.id("user", ""); err != nil {
		return err
	}
	collection, err := r.params.id("collection", api.DefaultCollection)
	if err != nil {
		return err
	}
	limit, err := r.params.uint("limit", api.DefaultFeedLimit, 1, api.MaxFeedLimit)
	if err != nil {
		return err
	}
	read, err := r.params.read()
	if err != nil {
		return err
	}
	feed, ref, err := s.ops.Feed(r.Context(), ops.FeedRequest{Collection: collection, Limit: int(limit), Read: read})
	if err != nil {
		return err
	}
	setReflected(w.Header(), ref.Term, ref.AppliedIndex)
	return writeJSON(w, http.StatusOK, feed)
}

func (s *Server) clusterStatus(w http.ResponseWriter, r *request) error {
	return writeJSON(w, http.StatusOK, s.ops.Status(r.Context()))
}

func (s *Server) localStatus(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, s.ops.LocalStatus())
}

func (s *Server) members(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, s.ops.Members())
}

func (s *Server) healthz(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, api.Alive{Alive: true})
}

func (s *Server) readyz(w http.ResponseWriter, _ *request) error {
	ready := s.ops.Ready()
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	return writeJSON(w, status, ready)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	writeAs(w, status, "application/json", v)
	return nil
}

// writeAs writes v as JSON, one line. Every v is one of our own types: none can fail to encode.
func writeAs(w http.ResponseWriter, status int, mediaType string, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // attributes come back byte for byte
	if err := enc.Encode(v); err != nil {
		panic(err) // answered as internal
	}
	h := w.Header()
	h["Content-Type"] = []string{mediaType}
	h["Content-Length"] = []string{strconv.Itoa(b.Len())}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // an error means that the caller is gone
}
