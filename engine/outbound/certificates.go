package outbound

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"procaas/dsl/tree"
	"procaas/dsl/urls"
)

// Certificates are those with which a node calls services with tls, in memory only. All definitions share them. The zero value
// reads none.
type Certificates struct {
	Read func(s *tree.Service, file string) (string, error) // a file of the secrets for a service; nil for none
	Log  *slog.Logger                                       // may be nil

	mu    sync.Mutex // guards known
	known map[certificateFiles]*certificate
}

// certificateFiles are the files of a service. The owner decides which files the service may have.
type certificateFiles struct{ service, owner, cert, key, ca string }

func filesOf(s *tree.Service) certificateFiles {
	return certificateFiles{s.ID, s.Owner, s.TLS.Cert, s.TLS.Key, s.TLS.CA}
}

// lookAgain is how long a change of the files may stay unseen.
const lookAgain = time.Second

// A certificate is what the node shows to one service, and the issuers that it trusts for it.
type certificate struct {
	of   *tree.Service
	from *Certificates

	mu     sync.Mutex // guards the following
	looked time.Time
	seen   [sha256.Size]byte // the hash of the files that were read last
	failed error             // why the files cannot be used now; nil if they can
	now    *identity         // of the last files that could be used; nil for none
}

// An identity is the content of the files of a service.
type identity struct {
	config *tls.Config
	own    *x509.Certificate // that the node shows; nil for none
	file   string            // of own
}

// A CertificateError reports that there is no connection because of a certificate.
type CertificateError struct {
	Ours bool // the node could not prove who it is; otherwise the service could not

	text string
	err  error
}

// Error implements error.
func (e *CertificateError) Error() string { return e.text }

func (e *CertificateError) Unwrap() error { return e.err }

// Secured makes the clients for the services of a definition that have tls, by their ids. client is that of [ForServices]. It
// gets what these do not, such as redirects to other hosts.
func (c *Certificates) Secured(client *http.Client, b *tree.Bundle) map[string]*http.Client {
	t, ok := client.Transport.(*transport)
	if c.Read == nil || !ok {
		return nil
	}
	clients := map[string]*http.Client{}
	for _, s := range b.Services {
		if s.TLS == nil {
			continue
		}
		files := filesOf(s)
		c.mu.Lock()
		if c.known == nil {
			c.known = map[certificateFiles]*certificate{}
		}
		if c.known[files] == nil {
			c.known[files] = &certificate{of: s, from: c}
		}
		own := &securedTransport{transport: t, homes: hostsOf([]string{s.URL, s.Address()}), certificate: c.known[files]}
		c.mu.Unlock()
		_, _ = own.certificate.present() // it logs what is wrong before the first call
		t.secured = append(t.secured, own)
		secured := *client
		secured.Transport = own
		clients[s.ID] = &secured
	}
	return clients
}

// Err returns what is wrong with the files that services need now.
func (c *Certificates) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []error
	for _, own := range c.known {
		_, _ = own.present()
		own.mu.Lock()
		all = append(all, own.failed)
		own.mu.Unlock()
	}
	return errors.Join(all...)
}

// Own returns the certificate that the node shows to a service, with its file. It is nil if there is none.
func (c *Certificates) Own(s *tree.Service) (own *x509.Certificate, file string) {
	if s.TLS == nil {
		return nil, ""
	}
	c.mu.Lock()
	known := c.known[filesOf(s)]
	c.mu.Unlock()
	if known == nil {
		return nil, ""
	}
	now, err := known.present()
	if err != nil {
		return nil, ""
	}
	return now.own, now.file
}

// present returns the content of the files, or the last one that could be used. The error is that of files that never could.
func (c *certificate) present() (*identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= lookAgain {
		c.looked = now
		c.look()
	}
	if c.now == nil {
		return nil, c.failed
	}
	return c.now, nil
}

// look reads the files. It logs once what has changed. The caller holds the lock.
func (c *certificate) look() {
	files := c.of.TLS
	var texts []string
	var err error
	for _, file := range []string{files.Cert, files.Key, files.CA} {
		text := ""
		if file != "" && err == nil {
			text, err = c.from.Read(c.of, file)
		}
		texts = append(texts, text)
	}
	seen := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	if err == nil && seen == c.seen {
		c.failed = nil
		return
	}
	var next *identity
	if err == nil {
		next, err = newIdentity(files, texts[0], texts[1], texts[2])
	}
	before := c.failed
	if c.failed = err; err != nil {
		c.failed = fmt.Errorf("tls of service %s: %w", c.of.ID, err)
	}
	log := cmp.Or(c.from.Log, slog.New(slog.DiscardHandler))
	switch {
	case err == nil:
		if c.now != nil {
			log.Info("the files of tls of a service were read again", "service", c.of.ID, "until", next.until())
		}
		c.now, c.seen = next, seen
	case before != nil && before.Error() == c.failed.Error():
	case c.now != nil:
		log.Error("the new files of tls of a service cannot be used, so its calls go on with those before", "service", c.of.ID, "error", err)
	default:
		log.Error("the files of tls of a service cannot be used; its calls fail until they can", "service", c.of.ID, "error", err)
	}
}

// newIdentity makes an identity of the content of files in PEM. Nothing of the key is in the error.
func newIdentity(files *tree.Certificates, cert, key, ca string) (*identity, error) {
	out := &identity{config: &tls.Config{MinVersion: tls.VersionTLS12}, file: files.Cert}
	if files.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			return nil, fmt.Errorf("%s with key %s: %w; want a certificate and its private key in PEM", files.Cert, files.Key, err)
		}
		out.own = pair.Leaf
		// Shown also to a service that names other issuers, so that it says what it does not like.
		out.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	if files.CA != "" {
		out.config.RootCAs = x509.NewCertPool()
		if !out.config.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, fmt.Errorf("%s has no certificates in PEM", files.CA)
		}
	}
	return out, nil
}

// until says when the node's own certificate ends.
func (i *identity) until() string {
	if i.own == nil {
		return ""
	}
	return i.own.NotAfter.UTC().Format(time.RFC3339)
}

// A securedTransport makes the requests that name one service with tls.
type securedTransport struct {
	*transport
	homes       hostSet // of the service
	certificate *certificate

	mu    sync.Mutex // guards the following
	with  *identity  // of conns
	conns *http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (s *securedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || !s.isHome(r) {
		return s.transport.RoundTrip(r)
	}
	conns, with, err := s.present()
	if err != nil {
		if r.Body != nil {
			r.Body.Close() // required by the interface, also on errors
		}
		return nil, &CertificateError{Ours: true, text: err.Error(), err: err}
	}
	return s.roundTrip(r, conns, with)
}

// isHome reports whether a request goes to the service, and no redirect has ever led to another host.
func (s *securedTransport) isHome(r *http.Request) bool {
	for r != nil {
		if !s.homes[urls.HostPort(r.URL)] {
			return false
		}
		if r.Response == nil {
			return true
		}
		r = r.Response.Request
	}
	return true
}

// present returns the connections with the present certificate. Those with the one before take no more requests.
func (s *securedTransport) present() (*http.Transport, *identity, error) {
	now, err := s.certificate.present()
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now != s.with {
		if s.conns != nil {
			s.conns.CloseIdleConnections() // and others when their calls have ended
		}
		s.conns, s.with = s.secure.Clone(), now
		s.conns.TLSClientConfig = now.config.Clone()
		for host := range s.homes {
			s.conns.DisableKeepAlives = s.conns.DisableKeepAlives || s.fresh[host]
		}
	}
	return s.conns, s.with, nil
}

// CloseIdleConnections closes idle connections.
func (s *securedTransport) CloseIdleConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns != nil {
		s.conns.CloseIdleConnections()
	}
}

// refusals are the alerts of TLS (RFC 8446) with which a peer refuses a certificate, or the lack of one.
var refusals = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// certificateError returns err as a [CertificateError] if it is about a certificate. with is what the node shows; nil for nothing.
func certificateError(err error, with *identity) error {
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		remedy := "check the address of the service, and its certificate"
		if _, unknown := errors.AsType[x509.UnknownAuthorityError](untrusted.Err); unknown {
			remedy = "write tls: {ca: FILE} at the service, with the certificate of its issuer"
			if with != nil && with.config.RootCAs != nil {
				remedy = "check the file of tls.ca"
			}
		}
		return &CertificateError{text: fmt.Sprintf("the certificate of the service cannot be trusted: %v; %s", untrusted.Err, remedy), err: err}
	}
	told, ok := errors.AsType[*net.OpError](err)
	// The type of an alert of the peer is hidden, but it has the same texts.
	if !ok || told.Op != "remote error" || !slices.ContainsFunc(refusals, func(a tls.AlertError) bool { return a.Error() == told.Err.Error() }) {
		return err
	}
	text := fmt.Sprintf("the service wants a certificate from its callers: %v; write tls: {cert: FILE, key: FILE} at the service", told.Err)
	if with != nil && with.own != nil {
		remedy := "ask its owner which issuers it trusts"
		if time.Now().After(with.own.NotAfter) {
			remedy = "it has ended, so replace the file and its key"
		}
		text = fmt.Sprintf("the service refuses our certificate %s, of %s until %s: %v; %s", with.file, with.own.Subject, with.until(), told.Err, remedy)
	}
	return &CertificateError{Ours: true, text: text, err: err}
}
