package daemon

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"strconv"
	"time"
)

// maxProfile bounds how long a request may profile the processor.
const maxProfile = time.Minute

// profile serves what `go tool pprof` asks for: /debug/pprof/profile?seconds=N of the processor, and
// heap, allocs, goroutine, mutex and block by their names. It is net/http/pprof without its pages,
// which bring a template engine into the binary.
func profile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name != "profile" {
		p := pprof.Lookup(name)
		if p == nil {
			http.Error(w, fmt.Sprintf("there is no profile %q", name), http.StatusNotFound)
			return
		}
		_ = p.WriteTo(w, 0) // a caller that went away
		return
	}
	seconds, err := strconv.ParseUint(r.URL.Query().Get("seconds"), 10, 16)
	if r.URL.Query().Get("seconds") == "" {
		seconds, err = 10, nil
	}
	if err != nil || time.Duration(seconds)*time.Second > maxProfile {
		http.Error(w, fmt.Sprintf("seconds: want 1 to %d", maxProfile/time.Second), http.StatusBadRequest)
		return
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		http.Error(w, err.Error(), http.StatusConflict) // another one is running
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
}
