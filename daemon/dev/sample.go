package dev

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// movies is 3,200 films, one JSON object a line, packed: a fifth of its size in the binary. 275 have
// no genre, 213 no votes.
//
//go:embed sample/movies.ndjson.gz
var movies []byte

const (
	loaders   = 32 // requests under way
	itemBatch = 500
)

// film is what the loader needs of a line; the line itself becomes the item.
type film struct {
	ID    string  `json:"id"`
	Votes float64 `json:"votes"`
	line  json.RawMessage
}

func parseFilms(packed []byte) ([]film, error) {
	ndjson, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	var films []film
	sc := bufio.NewScanner(ndjson)
	for sc.Scan() {
		f := film{line: bytes.Clone(sc.Bytes())}
		if err := json.Unmarshal(f.line, &f); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(films)+1, err)
		}
		films = append(films, f)
	}
	return films, sc.Err()
}

// loadSample writes the films as items, then one view a film that has votes, weighing as much. The
// file mark is written when all is in; where a former load was broken off, only the views that are
// missing are sent, so that none counts twice.
func loadSample(ctx context.Context, c *client, words io.Writer, mark string) error {
	if _, err := os.Stat(mark); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for %s: %w", mark, err)
	}
	films, err := parseFilms(movies)
	if err != nil {
		return err
	}
	start := time.Now()
	url := c.members[0].HTTP
	resumed := !isMissing(c.do(ctx, http.MethodGet, url+"/items/"+films[0].ID, nil, nil))
	for at := 0; at < len(films); at += itemBatch {
		var batch []json.RawMessage
		for _, f := range films[at:min(at+itemBatch, len(films))] {
			batch = append(batch, f.line)
		}
		if err := c.do(ctx, http.MethodPost, url+"/items", batch, nil); err != nil {
			return fmt.Errorf("items from %s on: %w", films[at].ID, err)
		}
	}
	if err := c.sendViews(ctx, url, films, resumed); err != nil {
		return err
	}
	fmt.Fprintf(words, "loaded %d films in %s\n", len(films), time.Since(start).Round(time.Millisecond))
	return os.WriteFile(mark, []byte("loaded\n"), 0o600)
}

func (c *client) sendViews(ctx context.Context, url string, films []film, resumed bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan film)
	var wg sync.WaitGroup
	for range loaders {
		wg.Go(func() {
			for f := range queue {
				if err := c.sendView(ctx, url, f, resumed); err != nil {
					cancel(fmt.Errorf("view of %s: %w", f.ID, err))
				}
			}
		})
	}
	for _, f := range films {
		if f.Votes <= 0 || ctx.Err() != nil {
			continue
		}
		queue <- f
	}
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
}

func (c *client) sendView(ctx context.Context, url string, f film, resumed bool) error {
	if resumed {
		var it api.ItemAnswer
		if err := c.do(ctx, http.MethodGet, url+"/items/"+f.ID, nil, &it); err != nil {
			return err
		}
		if it.Signals["view"].Count > 0 {
			return nil
		}
	}
	return c.do(ctx, http.MethodPost, url+"/signals", api.Signal{Item: f.ID, Signal: "view", Weight: &f.Votes}, nil)
}
