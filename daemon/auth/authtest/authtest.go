// Package authtest makes certificate authorities and certificates for tests of TLS.
//
// Callers: tests only.
package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority. File holds its certificate.
type CA struct {
	File string
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes an authority with its file in dir.
func NewCA(t testing.TB, dir, name string) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	ca := &CA{File: filepath.Join(dir, name+".pem"), t: t, key: key}
	ca.cert = sign(t, template, template, key, key)
	write(t, ca.File, "CERTIFICATE", ca.cert.Raw)
	return ca
}

// Issue writes a certificate for hosts, names or IPs, and its key to the files, for servers and clients,
// good from an hour ago for an hour and valid more.
func (ca *CA) Issue(certFile, keyFile string, valid time.Duration, hosts ...string) {
	ca.t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(ca.t), Subject: pkix.Name{CommonName: "member"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(ca.t)
	cert := sign(ca.t, template, ca.cert, key, ca.key)
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	write(ca.t, certFile, "CERTIFICATE", cert.Raw)
	write(ca.t, keyFile, "EC PRIVATE KEY", raw)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sign(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
