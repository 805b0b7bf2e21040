package ctl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// The environment of tidalctl, beside what decides colour and ASCII.
const (
	envEndpoints = "TIDALCTL_ENDPOINTS"
	envTokenFile = "TIDALCTL_TOKEN_FILE"
	envCAFile    = "TIDALCTL_CA_FILE"
	envCertFile  = "TIDALCTL_CERT_FILE"
	envKeyFile   = "TIDALCTL_KEY_FILE"
	envNoInput   = "TIDALCTL_NO_INPUT"
)

// defaultEndpoints returns the members of `tidald dev`.
func defaultEndpoints() []string {
	return []string{"http://127.0.0.1:9501", "http://127.0.0.1:9502", "http://127.0.0.1:9503"}
}

// Factory gives a verb what it works with. IO, Env and Build are required.
type Factory struct {
	IO    *iostreams.Streams
	Env   func(string) string
	Build api.VersionInfo

	// Transport is the seam to the network; nil means the real one.
	Transport http.RoundTripper

	flags struct {
		endpoints []string
		output    string
		timeout   time.Duration
		color     string
		ascii     bool
		noHeaders bool
	}

	// format is flags.output as the root's pre-run parsed it.
	format output.Format
}

// Client returns a client of the endpoints that the flags or the environment name. It does not dial.
// timeout bounds each read; 0 means client.ReadTimeout.
func (f *Factory) Client(timeout time.Duration) (*client.Client, error) {
	endpoints, fromEnv := f.endpoints()
	return f.clientOf(endpoints, fromEnv, timeout)
}

// Local returns a client of one member, the first that the flags or the environment name: it is about that
// one, and no other may answer for it.
func (f *Factory) Local(timeout time.Duration) (*client.Client, error) {
	endpoints, fromEnv := f.endpoints()
	return f.clientOf(endpoints[:1], fromEnv, timeout)
}

// At returns a client of the member at one URL that the command line names.
func (f *Factory) At(endpoint string, timeout time.Duration) (*client.Client, error) {
	return f.clientOf([]string{endpoint}, false, timeout)
}

func (f *Factory) clientOf(endpoints []string, fromEnv bool, timeout time.Duration) (*client.Client, error) {
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := f.tls()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{
		Endpoints: endpoints,
		Token:     token,
		UserAgent: "tidalctl/" + f.Build.Version,
		Timeout:   timeout,
		TLS:       tlsConfig,
		Transport: f.Transport,
	})
	if e, ok := errors.AsType[*client.EndpointError](err); ok {
		if fromEnv {
			return nil, &ConfigError{envEndpoints, e}
		}
		return nil, &UsageError{Code: "bad_endpoint", Detail: e.Error(), Try: []string{"tidalctl --endpoint http://127.0.0.1:9501 status"}}
	}
	return c, err
}

// Target returns the endpoints and the bearer key (empty: none) that Client would use, for a verb that
// speaks HTTP itself.
func (f *Factory) Target() (endpoints []string, token string, err error) {
	if _, err := f.Client(0); err != nil { // it refuses what is no endpoint
		return nil, "", err
	}
	endpoints, _ = f.endpoints()
	token, err = f.token()
	return endpoints, token, err
}

// endpoints returns the list to use: of the flag, else of the environment, else the default.
func (f *Factory) endpoints() (list []string, fromEnv bool) {
	if len(f.flags.endpoints) > 0 {
		return f.flags.endpoints, false
	}
	for e := range strings.SplitSeq(f.Env(envEndpoints), ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	if len(list) > 0 {
		return list, true
	}
	return defaultEndpoints(), false
}

// token reads the bearer key; empty where no file is named. Nothing of the file is ever shown.
func (f *Factory) token() (string, error) {
	path := f.Env(envTokenFile)
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &ConfigError{envTokenFile, err}
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &ConfigError{envTokenFile, fmt.Errorf("%s does not hold one printable key", path)}
	}
	return token, nil
}

// tls returns what the environment says of TLS; nil: nothing, the system's authorities are trusted.
func (f *Factory) tls() (*tls.Config, error) {
	ca, cert, key := f.Env(envCAFile), f.Env(envCertFile), f.Env(envKeyFile)
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return nil, &ConfigError{envCAFile, err}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, &ConfigError{envCAFile, fmt.Errorf("%s holds no certificate in PEM", ca)}
		}
	}
	switch {
	case cert == "" && key != "":
		return nil, &ConfigError{envCertFile, fmt.Errorf("is required with %s", envKeyFile)}
	case cert != "" && key == "":
		return nil, &ConfigError{envKeyFile, fmt.Errorf("is required with %s", envCertFile)}
	case cert != "":
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, &ConfigError{envCertFile, err}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Timeout returns --timeout, or def where it is not given.
func (f *Factory) Timeout(def time.Duration) time.Duration {
	if f.flags.timeout > 0 {
		return f.flags.timeout
	}
	return def
}

// Printer returns the printer for data, in the format that was asked for.
func (f *Factory) Printer() *output.Printer {
	return &output.Printer{
		Out:       f.IO.Out,
		Format:    f.format,
		Color:     iostreams.UseColor(f.flags.color, f.Env, f.IO.OutTTY),
		ASCII:     iostreams.UseASCII(f.flags.ascii, f.Env),
		NoHeaders: f.flags.noHeaders,
		Width:     f.IO.Width,
	}
}

// Tell says on Err how far a command is.
func (f *Factory) Tell(line string) {
	fmt.Fprintln(f.IO.Err, words.Clean(line, iostreams.UseASCII(f.flags.ascii, f.Env)))
}

// Report prints an error that does not end the command, as Run prints one that does.
func (f *Factory) Report(err error, impact Impact) {
	fault := Explain(err, impact)
	if f.format.Name == output.JSON {
		fault.json(f.IO.Err)
		return
	}
	fault.text(f.IO.Err, iostreams.UseColor(f.flags.color, f.Env, f.IO.ErrTTY), iostreams.UseASCII(f.flags.ascii, f.Env))
}
