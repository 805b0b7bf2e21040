package httpd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tidaldb/tidal/daemon/api"
)

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
