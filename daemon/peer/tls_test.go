package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
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
	a.SetPeers([]Peer{{ID: 2, Addr: "other.example:" + port}})
	a.awaitFailure(t, FailureError)
	a.SetPeers([]Peer{{ID: 2, Addr: "two.example:" + port}})
	a.awaitConnected(t, 2)
	a.Send(0, []*pb.Message{message(1, 2, 1, 0)})
	receive(t, b.delivered, "a message over TLS")

	plain := startMember(t, 3, anyPort)
	plain.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	plain.awaitStatus(t, "a failure", func(s PeerStatus) bool { return s.Failure != FailureNone })
}
