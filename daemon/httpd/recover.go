package httpd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// recoverWithin is how long a recovery may take: members that are lost are asked once more, and the
// replica is opened anew.
const recoverWithin = 30 * time.Second

func (s *Server) getRecover(w http.ResponseWriter, _ *request) error {
	v, err := s.ops.RecoverView()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// postRecover carries out a plan that a person has read. A field that nobody writes is refused: what it
// means is not known here.
func (s *Server) postRecover(w http.ResponseWriter, r *request) error {
	var plan api.RecoverPlan
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&plan); err != nil {
		return badField("", "not a plan: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badField("", "something follows the plan")
	}
	if err := extend(w, recoverWithin); err != nil {
		return err
	}
	answer, err := s.ops.Recover(r.Context(), plan)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}
