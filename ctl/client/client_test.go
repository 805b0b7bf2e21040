package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/daemon/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A network answers for hosts: it is the fake behind every test that is about time.
type network map[string]func(*http.Request) (*http.Response, error)

func (n network) RoundTrip(r *http.Request) (*http.Response, error) { return n[r.URL.Hostname()](r) }

func answer(status int, header http.Header, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: header,
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// up answers as a member that sees term.
func up(name string, term int) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		h.Set(api.HeaderMember, name)
		h.Set(api.HeaderTerm, fmt.Sprint(term))
		h.Set(api.HeaderIndex, "125")
		return answer(200, h, fmt.Sprintf(`{"observer":%q,"term":%d}`, name, term)), nil
	}
}

// hung takes the request and never answers.
func hung(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func refused(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func problem(code api.Code) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		p := api.NewProblem(code, "because 3 is more than 2")
		h := http.Header{}
		h.Set("Content-Type", api.ProblemType)
		h.Set(api.HeaderMember, "m")
		return answer(p.Status, h, fmt.Sprintf(`{"code":%q,"detail":%q}`, p.Code, p.Detail)), nil
	}
}

func newClient(t *testing.T, n network, hosts ...string) *client.Client {
	t.Helper()
	o := client.Options{Transport: n}
	for _, h := range hosts {
		o.Endpoints = append(o.Endpoints, "http://"+h)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A member is told how long its answer is waited for, where that has an end.
func TestClient_TellsHowLongItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var given []string
		note := func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/healthz" { // whether anybody is there, before a change
				return up("a", 7)(r)
			}
			given = append(given, r.Header.Get(api.HeaderTimeout))
			return up("a", 7)(r)
		}
		c := newClient(t, network{"a": note}, "a")
		if _, _, err := c.Status(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		if _, _, err := c.Reconcile(ctx, api.ReconcileRequest{Region: "b"}); err != nil {
			t.Error(err)
		}
		if _, _, err := c.Reconcile(t.Context(), api.ReconcileRequest{Region: "b"}); err != nil {
			t.Error(err)
		}
		if want := []string{"2000", "12000", ""}; !slices.Equal(given, want) {
			t.Errorf("%s of the requests: %q, want %q", api.HeaderTimeout, given, want)
		}
	})
}

func TestClient_AsksUntilOneAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		net   network
		hosts []string
		from  string        // the member that answered
		err   string        // else the error
		most  time.Duration // at most this long
	}{
		{name: "first answers", net: network{"a": up("a", 7), "b": hung}, hosts: []string{"a", "b"}, from: "a"},
		{name: "first refused", net: network{"a": refused, "b": up("b", 7)}, hosts: []string{"a", "b"}, from: "b", most: 60 * time.Millisecond},
		{name: "first hangs", net: network{"a": hung, "b": up("b", 7)}, hosts: []string{"a", "b"}, from: "b", most: 1100 * time.Millisecond},
		{name: "four of five dead", net: network{"a": hung, "b": hung, "c": refused, "d": hung, "e": up("e", 7)}, hosts: []string{"a", "b", "c", "d", "e"}, from: "e", most: 1100 * time.Millisecond},
		{name: "first is not ready", net: network{"a": problem(api.CodeNotReady), "b": up("b", 7)}, hosts: []string{"a", "b"}, from: "b", most: 60 * time.Millisecond},
		{name: "all hang", net: network{"a": hung, "b": hung, "c": hung}, hosts: []string{"a", "b", "c"},
			err: "no endpoint answered: http://a timeout: no answer in 2s; http://b timeout: no answer in 2s; http://c timeout: no answer in 2s", most: 3100 * time.Millisecond},
		{name: "one, hangs", net: network{"a": hung}, hosts: []string{"a"}, err: "no endpoint answered: http://a timeout: no answer in 2s", most: 2 * time.Second},
		{name: "all refuse", net: network{"a": refused, "b": refused}, hosts: []string{"a", "b"},
			err: "no endpoint answered: http://a refused: nothing listens there; http://b refused: nothing listens there", most: 60 * time.Millisecond},
		{name: "words before silence", net: network{"a": hung, "b": problem(api.CodeNotReady)}, hosts: []string{"a", "b"}, err: "m: not_ready: because 3 is more than 2", most: 2 * time.Second},
		{name: "a wrong key is wrong everywhere", net: network{"a": problem(api.CodeUnauthorized), "b": up("b", 7)}, hosts: []string{"a", "b"}, err: "m: unauthorized: because 3 is more than 2"},
		{name: "something else listens", net: network{"a": func(*http.Request) (*http.Response, error) { return answer(200, http.Header{}, "<html>"), nil }}, hosts: []string{"a"},
			err: "no endpoint answered: http://a foreign: the answer names no member: not a tidald"},
		{name: "a proxy apologises", net: network{"a": func(*http.Request) (*http.Response, error) { return answer(502, http.Header{}, "<html>"), nil }}, hosts: []string{"a"},
			err: "no endpoint answered: http://a foreign: HTTP 502 Bad Gateway without a problem: not a tidald"},
		{name: "half an answer", net: network{"a": func(r *http.Request) (*http.Response, error) {
			resp, err := up("a", 7)(r)
			resp.Body = io.NopCloser(strings.NewReader(`{"term":`))
			return resp, err
		}}, hosts: []string{"a"}, err: "no endpoint answered: http://a foreign: the answer is not what /cluster/status answers: unexpected end of JSON input"},
		{name: "an endless answer", net: network{"a": func(r *http.Request) (*http.Response, error) {
			resp, err := up("a", 7)(r)
			resp.Body = io.NopCloser(io.LimitReader(zeros{}, 1<<40))
			return resp, err
		}}, hosts: []string{"a"}, err: "no endpoint answered: http://a foreign: the answer is larger than 16777216 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, tc.net, tc.hosts...)
				start := time.Now()
				status, source, err := c.Status(t.Context())
				if took := time.Since(start); took > tc.most {
					t.Errorf("took %v, want at most %v", took, tc.most)
				}
				switch {
				case tc.err != "":
					if err == nil || err.Error() != tc.err {
						t.Errorf("error = %v, want %s", err, tc.err)
					}
				case err != nil:
					t.Error(err)
				case status.Observer != tc.from || source.Member != tc.from || *source.Term != 7 || *source.Index != 125:
					t.Errorf("answer of %s, source %+v; want %s", status.Observer, source, tc.from)
				}
			})
		})
	}
}

// A change goes to a member that answers: one that takes it and is silent could not say later what it did. Where
// all are silent nothing is sent.
func TestClient_SendsChangesToWhoAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		note := func(next func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
			return func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					sent = append(sent, r.URL.Hostname())
				}
				return next(r)
			}
		}
		cannot := note(func(*http.Request) (*http.Response, error) { // it answers whether it lives, and cannot do it
			h := http.Header{"Content-Type": {api.ProblemType}}
			h.Set(api.HeaderMember, "c")
			return answer(503, h, `{"code":"member_unreached","effect":"none"}`), nil
		})
		n := network{"cannot": func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return up("c", 7)(r)
			}
			return cannot(r)
		}, "stopped": note(hung), "dead": note(refused), "well": note(up("a", 7)), "strange": note(func(*http.Request) (*http.Response, error) {
			return answer(404, http.Header{}, "no"), nil
		})}
		for _, tc := range []struct {
			hosts string
			want  string // whom it was sent to
			fails bool
		}{
			{"well", "well", false},
			{"stopped well", "well", false},
			{"dead stopped well", "well", false},
			{"stopped", "", true},
			{"dead stopped", "", true},
			{"strange", "strange", true},
			{"cannot stopped", "cannot", true},
			{"cannot stopped dead well", "cannot well", false},
		} {
			sent = nil
			start := time.Now()
			_, _, err := newClient(t, n, strings.Fields(tc.hosts)...).Promote(t.Context(), api.PromoteRequest{Region: "b"})
			_, unreachable := errors.AsType[*client.UnreachableError](err)
			if strings.Join(sent, " ") != tc.want || (err != nil) != tc.fails || tc.want == "" && !unreachable || time.Since(start) > client.ReadTimeout {
				t.Errorf("%s: sent to %q, want %q, after %s: %v", tc.hosts, sent, tc.want, time.Since(start), err)
			}
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// The whole read is bounded, however patient the endpoints are asked to be.
func TestClient_WholeReadIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(client.Options{Endpoints: []string{"http://a", "http://b"}, Timeout: 300 * time.Millisecond, Transport: network{"a": hung, "b": hung}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, _, err = c.Status(t.Context())
		dead, ok := errors.AsType[*client.UnreachableError](err)
		if !ok || len(dead.Tried) != 2 || time.Since(start) > 300*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// Who answered last is asked first: one dead endpoint costs one read, not every read.
func TestClient_StaysWithTheOneThatAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		c := newClient(t, network{
			"a": func(r *http.Request) (*http.Response, error) { asked.Add(1); return hung(r) },
			"b": up("b", 7),
		}, "a", "b")
		for range 3 {
			if _, _, err := c.Status(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if asked.Load() != 1 {
			t.Errorf("the dead endpoint was asked %d times, want once", asked.Load())
		}
	})
}

func TestClient_SaysWhoGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("interrupted by hand")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
		if _, _, err := newClient(t, network{"a": hung}, "a").Status(ctx); !errors.Is(err, why) {
			t.Errorf("error = %v, want %v", err, why)
		}
	})
}

// A connection that breaks under the request is tried once more.
func TestClient_RepeatsOverALostConnection(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set(api.HeaderMember, "a")
		io.WriteString(w, `{"observer":"a"}`)
	}))
	defer s.Close()
	c, err := client.New(client.Options{Endpoints: []string{s.URL}, Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, err := c.Status(t.Context()); err != nil || status.Observer != "a" {
		t.Errorf("Status = %v, %v", status, err)
	}
}

// The key goes to the endpoints that were named, never after a redirect.
func TestClient_KeepsTheKey(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.WriteString("asked") }))
	defer thief.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("Authorization = %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	c, err := client.New(client.Options{Endpoints: []string{s.URL}, Token: "k", Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Status(t.Context()); err == nil || got.Len() > 0 {
		t.Errorf("followed a redirect: %v %s", err, &got)
	}
}

func TestNew_RefusesEndpoints(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"127.0.0.1:9501":      "want a URL like http://127.0.0.1:9501",
		"ftp://a":             "want a URL like http://127.0.0.1:9501",
		"http://":             "want a URL like http://127.0.0.1:9501",
		"http://u:secret@a":   "credentials do not belong in a URL",
		"http://a?key=secret": "a query or fragment does not belong here",
	} {
		_, err := client.New(client.Options{Endpoints: []string{in}})
		if e, ok := errors.AsType[*client.EndpointError](err); !ok || !strings.Contains(e.Detail, want) {
			t.Errorf("New(%q) = %v, want %s", in, err, want)
		}
	}
	if _, err := client.New(client.Options{Endpoints: []string{"http://u:secret@a"}}); strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the password: %v", err)
	}
}
