package web

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// A Certificate is the certificate of a server, with its key, in two PEM files. It is renewed by replacing the files: they are read
// again within a second, for new connections. Until both fit together, connections get the last certificate that did.
type Certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex // guards all below
	looked time.Time
	seen   [2]state // of the files that were read last, whether they could be used or not
	now    *tls.Certificate
}

// A state tells whether a file was replaced.
type state struct {
	changed time.Time
	size    int64
}

// ReadCertificate reads a certificate. The first file may have the certificates of its issuers behind it.
func ReadCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: log}
	return c, c.read()
}

// read replaces the certificate by that in the files, if they have changed. Of files that stay as they are, it tells once what is wrong.
func (c *Certificate) read() error {
	var seen [2]state
	for i, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
		seen[i] = state{info.ModTime(), info.Size()}
	}
	if seen == c.seen {
		return nil
	}
	c.seen = seen
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w; want a certificate and its private key in PEM", c.cert, c.key, err)
	}
	c.now = &pair
	return nil
}

// of returns the certificate for a connection.
func (c *Certificate) of(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= time.Second {
		c.looked = now
		before := c.now
		if err := c.read(); err != nil {
			c.log.Error("the new certificate cannot be used, so connections get the one before", "error", err)
		} else if c.now != before {
			c.log.Info("the certificate was read again", "until", c.now.Leaf.NotAfter)
		}
	}
	return c.now, nil
}

// ReadIssuers reads the certificates of those who may issue client certificates, a PEM file.
func ReadIssuers(name string) (*x509.CertPool, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("issuers of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("issuers of client certificates: %w", errors.New(name+" has no certificates in PEM"))
	}
	return pool, nil
}

// Encrypt makes a server speak TLS. Clients may show certificates of the issuers. Nil asks for none. Call it before Start.
func (f *Server) Encrypt(c *Certificate, issuers *x509.CertPool) {
	f.server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.of}
	if issuers != nil {
		f.server.TLSConfig.ClientCAs, f.server.TLSConfig.ClientAuth = issuers, tls.VerifyClientCertIfGiven
	}
	// Deadlines and bounds of connections are those of HTTP/1.1.
	f.server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	f.encrypted = true
}

// Scheme returns http or https.
func (f *Server) Scheme() string {
	if f.encrypted {
		return "https"
	}
	return "http"
}
