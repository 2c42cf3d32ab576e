package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// An issuer signs certificates of a test.
type issuer struct {
	t     *testing.T
	dir   string
	about *x509.Certificate
	key   *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t, dir: t.TempDir()}
	i.about = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	if i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	i.write("ca", i.about, i.key)
	return i
}

// write signs a certificate, and returns the files of it and its key.
func (i *issuer) write(name string, about *x509.Certificate, key *ecdsa.PrivateKey) (cert, private string) {
	i.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, about, i.about, key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	cert, private = filepath.Join(i.dir, name+".pem"), filepath.Join(i.dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, private: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			i.t.Fatal(err)
		}
	}
	return cert, private
}

// leaf signs a certificate for a server on loopback, or for a client with these names.
func (i *issuer) leaf(name, uri string) (cert, key string) {
	i.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			i.t.Fatal(err)
		}
		about.URIs = []*url.URL{u}
	}
	return i.write(name, about, private)
}

// A client certificate stands for a token: with its role, until it is revoked. Certificates of others stand for nothing.
func TestCertificatesOfClientsStandForTokens(t *testing.T) {
	t.Parallel()
	ours, others := newIssuer(t), newIssuer(t)
	cert, key := ours.leaf("server", "")
	cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", "sqlite:"+filepath.Join(t.TempDir(), "s.db"), "--log-format", "json",
		"--pipelines", "../../deploy/flows", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca",
		filepath.Join(ours.dir, "ca.pem"))
	cmd.Env = append(os.Environ(), "PROCAAS_ADMIN_TOKEN="+adminToken)
	at := startSignalled(t, cmd).ready()
	run := func(want string, env []string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "procaas", append(args, "--server", at)...)
		c.Env = append(append(os.Environ(), "SSL_CERT_FILE="+filepath.Join(ours.dir, "ca.pem")), env...)
		out, err := c.CombinedOutput()
		code := "exit status 0"
		if err != nil {
			code = err.Error()
		}
		if have := string(out) + code; !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%q: have %s, want %s", args, have, want)
		}
	}
	shows := func(i *issuer, name, uri string) []string {
		t.Helper()
		cert, key := i.leaf(name, uri)
		return []string{"PROCAAS_CLIENT_CERT=" + cert, "PROCAAS_CLIENT_KEY=" + key}
	}
	admin := []string{"PROCAAS_TOKEN=" + adminToken}
	const shop = "spiffe://example/shop"
	run(`Its bearer shows a certificate with URI:spiffe://example/shop`, admin, "token", "new", "--name", "shop", "--role", "viewer",
		"--certificate", "URI:"+shop)
	run(`certificates with URI:spiffe://example/shop(?s).*exit status [12]`, admin, "token", "new", "--name", "again", "--role", "admin",
		"--certificate", "URI:"+shop)
	run(`certificate: want a name such as(?s).*exit status 2`, admin, "token", "new", "--name", "again", "--role", "admin",
		"--certificate", "shop")

	run(`exit status 0`, shows(ours, "any", shop), "runs", "list")
	run(`the token shop is a viewer's(?s).*exit status 1`, shows(ours, "any", shop), "reload")
	run(`no token is for a certificate with CN:shop(?s).*exit status 1`, shows(ours, "shop", ""), "runs", "list")
	run(`exit status [13]`, shows(others, "any", shop), "runs", "list")
	run(`exit status 1`, nil, "runs", "list")
	run(`exit status 0`, append(shows(ours, "any", shop), admin...), "versions", "show", "current")
	run(`exit status 0`, admin, "token", "revoke", "shop")
	run(`no token is for a certificate(?s).*exit status 1`, shows(ours, "any", shop), "runs", "list")
}
