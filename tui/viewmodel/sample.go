package viewmodel

import (
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// Sample is what came of asking for the status once. It is also one line of a recording.
type Sample struct {
	// At is when the asking ended, on the clock of this machine.
	At time.Time `json:"at"`

	// Status is nil when nobody answered; Failures then say why, one an endpoint.
	Status   *api.Status `json:"status,omitempty"`
	Endpoint string      `json:"endpoint,omitempty"` // that answered
	Failures []Failure   `json:"failures,omitempty"`

	// Err is what the failures were made of; nil in a recording.
	Err error `json:"-"`
}

// Failure says why one endpoint was of no use.
type Failure struct {
	Endpoint string `json:"endpoint"`
	Code     string `json:"code"`
	Detail   string `json:"detail"`
}
