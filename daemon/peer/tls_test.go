package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// mutualTLS makes a certificate authority and one certificate for the given host.
func mutualTLS(t *testing.T, host string) *tls.Config {
	t.Helper()
	make := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	ca, caKey := make(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	cert, key := make(&x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, ca, caKey)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

func TestNetwork_TLSFollowsTheHostOfTheAddress(t *testing.T) {
	config := mutualTLS(t, "two.example")
	secure := func(o *Options) {
		o.TLS, o.Key = config, nil
		o.Resolve = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	}
	a, b := startMember(t, 1, anyPort, secure), startMember(t, 2, anyPort, secure)
	_, port, _ := net.SplitHostPort(b.addr)
	a.SetPeers([]Peer{{ID: 2, Addr: "two.example:" + port}})
	a.awaitConnected(t, 2)
	a.Send(0, []*pb.Message{message(1, 2, 1, 0)})
	receive(t, b.delivered, "a message over TLS")

	plain := startMember(t, 3, anyPort)
	plain.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	plain.awaitStatus(t, "a failure", func(s PeerStatus) bool { return s.Failure != FailureNone })
}

// A peer that certificates stand between is not one that is merely away: the failure says so, whichever of the
// two does not take the other's.
func TestNetwork_SaysThatTLSFails(t *testing.T) {
	ours, theirs := mutualTLS(t, "two.example"), mutualTLS(t, "two.example")
	for _, tc := range []struct {
		name, host   string
		here, there  *tls.Config
		wantInDetail string
	}{
		{"its certificate is of another host", "other.example", ours, ours, "other.example"},
		{"its authority is unknown here", "two.example", ours, theirs, "unknown authority"},
		{"ours is unknown there", "two.example", &tls.Config{Certificates: theirs.Certificates, RootCAs: ours.RootCAs}, ours, "remote error"},
		{"it speaks plain text", "two.example", ours, nil, "TLS handshake"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := startMember(t, 2, anyPort, func(o *Options) { o.TLS = tc.there })
			a := startMember(t, 1, anyPort, func(o *Options) {
				o.TLS = tc.here
				o.Resolve = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
			})
			_, port, _ := net.SplitHostPort(b.addr)
			a.SetPeers([]Peer{{ID: 2, Addr: tc.host + ":" + port}})
			if s := a.awaitFailure(t, FailureTLS); !strings.Contains(s.Detail, tc.wantInDetail) {
				t.Errorf("detail %q, want %q in it", s.Detail, tc.wantInDetail)
			}
		})
	}
}

// What is wrong with the way below TLS, or with who waits for it, is not called a matter of certificates.
func TestOfTLS(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for err, want := range map[error]bool{
		alert:                              true,
		fmt.Errorf("handshake: %w", alert): true,
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}:          true,
		tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}: true,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:                             false,
		io.EOF:                   false,
		io.ErrUnexpectedEOF:      false,
		net.ErrClosed:            false,
		context.Canceled:         false,
		context.DeadlineExceeded: false,
	} {
		if got := ofTLS(err); got != want {
			t.Errorf("ofTLS(%v) = %t", err, got)
		}
	}
}
