package verbs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// completionKept is how long what was offered once may be offered again without asking.
const completionKept = 10 * time.Second

// completionCache is a file with the members of one cluster, for a Tab that the cluster does not
// answer in time. Whatever goes wrong with it, there is no answer in it.
type completionCache struct{ path string } // empty: nowhere

// cached is what the file holds.
type cached struct {
	At      time.Time    `json:"at"`
	Regions []api.Region `json:"regions"`
}

// newCompletionCache returns the cache of the cluster that the endpoints name.
func newCompletionCache(env func(string) string, endpoints []string) completionCache {
	dir := env("XDG_CACHE_HOME")
	if dir == "" && env("HOME") != "" {
		dir = filepath.Join(env("HOME"), ".cache")
	}
	if !filepath.IsAbs(dir) { // the standard says so, too
		return completionCache{}
	}
	key := sha256.Sum256([]byte(strings.Join(endpoints, "\n")))
	return completionCache{filepath.Join(dir, "tidalctl", "members-"+hex.EncodeToString(key[:8])+".json")}
}

// put replaces what the file holds: two shells that complete at once leave one of both.
func (c completionCache) put(regions []api.Region, now time.Time) {
	if c.path == "" {
		return
	}
	b, err := json.Marshal(cached{now, regions})
	if err != nil || os.MkdirAll(filepath.Dir(c.path), 0o700) != nil {
		return
	}
	tmp, err := os.CreateTemp(filepath.Dir(c.path), "members-*.tmp") // mode 0600
	if err != nil {
		return
	}
	_, written := tmp.Write(b)
	if closed := tmp.Close(); written != nil || closed != nil || os.Rename(tmp.Name(), c.path) != nil {
		_ = os.Remove(tmp.Name())
	}
}

// get returns what was put at most completionKept ago.
func (c completionCache) get(now time.Time) []api.Region {
	b, err := os.ReadFile(c.path)
	if err != nil {
		return nil
	}
	var kept cached
	if json.Unmarshal(b, &kept) != nil {
		return nil
	}
	if age := now.Sub(kept.At); age < 0 || age > completionKept {
		return nil
	}
	return kept.Regions
}
