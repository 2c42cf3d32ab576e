package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/transport"
)

// renew writes a certificate of 127.0.0.1 with a serial number, and its key.
func renew(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificateIsReplacedWithoutARestart renews the certificate of a server, and then spoils it: new connections get the new one, and
// the spoilt one changes nothing.
func TestCertificateIsReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	renew(t, cert, key, 1)
	c, err := ReadCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler), transport.Server)
	if err != nil {
		t.Fatal(err)
	}
	s.Encrypt(c, nil)
	s.Start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	if s.Scheme() != "https" {
		t.Errorf("the scheme is %s, want https", s.Scheme())
	}
	serial := func() int64 {
		t.Helper()
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // its own
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if have := serial(); have != 1 {
		t.Fatalf("the certificate has the number %d, want 1", have)
	}
	renew(t, cert, key, 2)
	for deadline := time.Now().Add(time.Minute); serial() != 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("connections get the old certificate for a minute")
		}
	}
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.looked = time.Time{}
	c.mu.Unlock()
	if have := serial(); have != 2 {
		t.Errorf("with a spoilt key, the certificate has the number %d, want 2", have)
	}
	if _, err := ReadCertificate(cert, key, nil); err == nil || !strings.Contains(err.Error(), "want a certificate and its private key in PEM") {
		t.Errorf("a server begins with a spoilt key: %v", err)
	}
}
