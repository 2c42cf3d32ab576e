package enginetest

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

// An Issuer signs the certificates of a test.
type Issuer struct {
	CA string // PEM file with its own certificate

	t     testing.TB
	about *x509.Certificate
	key   *ecdsa.PrivateKey
}

// NewIssuer makes an issuer whose files end with the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, key: newKey(t)}
	i.about = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	i.CA, _ = i.write(i.about, i.key)
	return i
}

// Leaf signs a certificate for a server on loopback, or for a client. change may set more of it. It returns the PEM files of the
// certificate and its key.
func (i *Issuer) Leaf(name string, change func(*x509.Certificate)) (cert, key string) {
	i.t.Helper()
	about := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(about)
	}
	return i.write(about, newKey(i.t))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// write signs a certificate, and returns the files of it and its key.
func (i *Issuer) write(about *x509.Certificate, key *ecdsa.PrivateKey) (cert, private string) {
	i.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, about, i.about, key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	dir := i.t.TempDir()
	cert, private = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, private: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			i.t.Fatal(err)
		}
	}
	return cert, private
}
