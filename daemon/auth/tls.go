package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// TLSFiles names the files of a member's certificate and of the authorities that it trusts.
type TLSFiles struct {
	Cert, Key string // PEM; required. The key is a secret as any
	// CA signs the members. Empty: the system's authorities do, and members are not asked for
	// certificates.
	CA string
	// ClientCA signs clients of the API, beside CA.
	ClientCA string
	// RequireClientCert refuses clients of the API without a certificate of ClientCA or CA.
	RequireClientCert bool
}

// TLS is the transport security of a member. Every connection uses the files as they are then.
type TLS struct {
	files TLSFiles
	now   atomic.Pointer[material]
}

// material is what the files hold.
type material struct {
	cert     tls.Certificate
	peers    *x509.CertPool // nil: the system's
	clients  *x509.CertPool // nil: nobody is asked
	notAfter time.Time
}

// errNoCertificate refuses a TLS configuration without a certificate.
var errNoCertificate = errors.New("a certificate and its key are required")

// TLS reads the files, and follows them from then on.
func (r *Reloader) TLS(files TLSFiles) (*TLS, error) {
	if files.Cert == "" || files.Key == "" {
		return nil, errNoCertificate
	}
	t := &TLS{files: files}
	paths := []string{files.Cert, files.Key}
	for _, path := range []string{files.CA, files.ClientCA} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	err := r.watch("tls", paths, func() error {
		m, err := files.load()
		if err != nil {
			return err
		}
		t.now.Store(m)
		r.expiry.Set(float64(m.notAfter.Unix()))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (f TLSFiles) load() (*material, error) {
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, &FileError{Path: f.Cert, Detail: "read", Err: cause(err)}
	}
	key, err := readSecret(f.Key, maxKeyFileBytes)
	if err != nil {
		return nil, err
	}
	m := &material{}
	if m.cert, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, &FileError{Path: f.Cert, Detail: "with the key in " + f.Key, Err: err}
	}
	if m.notAfter = m.cert.Leaf.NotAfter; time.Now().After(m.notAfter) {
		return nil, &FileError{Path: f.Cert, Detail: "the certificate expired on " + m.notAfter.UTC().Format(time.RFC3339)}
	}
	if f.CA != "" {
		if m.peers, err = readPool(f.CA); err != nil {
			return nil, err
		}
	}
	if f.CA != "" || f.ClientCA != "" {
		m.clients = x509.NewCertPool()
		for _, path := range []string{f.CA, f.ClientCA} { // members are clients of each other
			if path == "" {
				continue
			}
			if err := addTo(m.clients, path); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func readPool(path string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	return pool, addTo(pool, path)
}

func addTo(pool *x509.CertPool, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return &FileError{Path: path, Detail: "read", Err: cause(err)}
	}
	if !pool.AppendCertsFromPEM(b) {
		return &FileError{Path: path, Detail: "holds no certificate in PEM"}
	}
	return nil
}

// ForClients is how the HTTP surface is served.
func (t *TLS) ForClients() *tls.Config {
	return serve(func() *tls.Config {
		m := t.now.Load()
		c := m.base()
		c.NextProtos = []string{"http/1.1"}
		if c.ClientCAs = m.clients; m.clients != nil {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		if t.files.RequireClientCert {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return c
	})
}

// ForPeers is how peers are served: with an authority of their own, each shows its certificate.
func (t *TLS) ForPeers() *tls.Config {
	return serve(func() *tls.Config {
		m := t.now.Load()
		c := m.base()
		c.NextProtos = []string{"h2"}
		if c.ClientCAs = m.peers; m.peers != nil {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return c
	})
}

// Dial is how another member is called now. The server's name is that of its address; the caller fills
// it in.
func (t *TLS) Dial() *tls.Config {
	m := t.now.Load()
	c := m.base()
	c.RootCAs = m.peers
	return c
}

func (m *material) base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{m.cert}}
}

// serve makes a configuration that is asked for anew at every handshake.
func serve(now func() *tls.Config) *tls.Config {
	c := now()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return now(), nil }
	return c
}

// Mutual reports whether members show each other certificates.
func (t *TLS) Mutual() bool { return t.files.CA != "" }

// IsPeer reports whether a client of the HTTP surface is a member: it showed a certificate of the
// members' authority.
func (t *TLS) IsPeer(s *tls.ConnectionState) bool {
	m := t.now.Load()
	if s == nil || m.peers == nil || len(s.PeerCertificates) == 0 {
		return false
	}
	intermediates := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: m.peers, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// ServesName reports whether the certificate in use is good for host, a name or an IP; the error says
// for which names it is.
func (t *TLS) ServesName(host string) error {
	leaf := t.now.Load().cert.Leaf
	err := leaf.VerifyHostname(host)
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("the certificate in %s is for %q %v, not for %s", t.files.Cert, e.Certificate.DNSNames, e.Certificate.IPAddresses, host)
	}
	return err
}
