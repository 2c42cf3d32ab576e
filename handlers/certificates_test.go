package handlers_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/secrets"
)

// A certifiedService answers callers with a certificate of its issuer, and keeps whose calls and connections it has.
type certifiedService struct {
	*httptest.Server

	mu    sync.Mutex // guards the following
	calls []string   // path and name of the certificate
	open  map[net.Conn]string
}

// newCertifiedService starts a service. want says which certificates it asks for.
func newCertifiedService(t *testing.T, of *enginetest.Issuer, want tls.ClientAuthType, cert, key string) *certifiedService {
	t.Helper()
	s := &certifiedService{open: map[net.Conn]string{}}
	s.Server = httptest.NewUnstartedServer(s)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(of.CA)
	if err != nil {
		t.Fatal(err)
	}
	issuers := x509.NewCertPool()
	issuers.AppendCertsFromPEM(ca)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: want, ClientCAs: issuers}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateClosed {
			delete(s.open, c)
		} else if secured, ok := c.(*tls.Conn); ok && state == http.StateIdle {
			s.open[c] = nameIn(secured.ConnectionState())
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func nameIn(s tls.ConnectionState) string {
	if len(s.PeerCertificates) == 0 {
		return "nobody"
	}
	return s.PeerCertificates[0].Subject.CommonName
}

// ServeHTTP implements [http.Handler]. It redirects /to/ADDRESS to https://ADDRESS.
func (s *certifiedService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls = append(s.calls, r.URL.Path+" "+nameIn(*r.TLS))
	s.mu.Unlock()
	if at, ok := strings.CutPrefix(r.URL.Path, "/to/"); ok {
		http.Redirect(w, r, "https://"+at, http.StatusTemporaryRedirect)
	}
}

// heard returns the calls so far, and how many connections are open by the names of their certificates.
func (s *certifiedService) heard() (calls []string, open map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open = map[string]int{}
	for _, name := range s.open {
		open[name]++
	}
	return append([]string(nil), s.calls...), open
}

// A secretsDir has the files of services, as --secrets-dir has.
type secretsDir struct {
	t   *testing.T
	dir string
}

// put copies files under other names, in pairs.
func (d secretsDir) put(names ...string) {
	d.t.Helper()
	for i := 0; i < len(names); i += 2 {
		data, err := os.ReadFile(names[i+1])
		if err != nil {
			d.t.Fatal(err)
		}
		d.write(names[i], data)
	}
}

// write replaces a file at once, as those who renew certificates do.
func (d secretsDir) write(name string, data []byte) {
	d.t.Helper()
	next := filepath.Join(d.dir, "."+name)
	if err := os.WriteFile(next, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(d.dir, name)); err != nil {
		d.t.Fatal(err)
	}
}

func (d secretsDir) use(o *engine.Options) {
	o.Secrets = func(use secrets.Use) (string, error) {
		text, err := os.ReadFile(filepath.Join(d.dir, use.Name))
		return string(text), err
	}
}

// A service gets the certificate that its declaration names, nobody else does, and people learn why a connection was refused.
func TestCertificatesReachTheirServiceAndNothingElse(t *testing.T) {
	t.Parallel()
	ours, others := enginetest.NewIssuer(t), enginetest.NewIssuer(t)
	cert, key := ours.Leaf("server", nil)
	bank := newCertifiedService(t, ours, tls.RequireAndVerifyClientCert, cert, key)
	curious := newCertifiedService(t, ours, tls.RequestClientCert, cert, key)
	d := secretsDir{t, t.TempDir()}
	cert, key = ours.Leaf("shop", nil)
	d.put("tls.crt", cert, "tls.key", key, "ca.crt", ours.CA, "strange-ca.crt", others.CA)
	private, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = others.Leaf("stranger", nil)
	d.put("strange.crt", cert, "strange.key", key)
	cert, key = ours.Leaf("late", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) })
	d.put("late.crt", cert, "late.key", key)
	d.write("spoilt.crt", []byte("nothing"))

	_, port, _ := net.SplitHostPort(bank.Listener.Addr().String())
	away := strings.TrimPrefix(curious.URL, "https://")
	cases := []struct{ name, tls, request, class, want string }{
		{"fine", "{cert: tls.crt, key: tls.key, ca: ca.crt}", "", "", ""},
		{"redirected", "{cert: tls.crt, key: tls.key, ca: ca.crt}", "{service: redirected, path: /to/" + away + ", redirects: 1}", "certificate", "signed by unknown authority"},
		{"nobody", "{ca: ca.crt}", "", "credentials", "the service wants a certificate from its callers"},
		{"url", "{ca: ca.crt}", "{url: " + bank.URL + "}", "certificate", "cannot be trusted"},
		{"stranger", "{cert: strange.crt, key: strange.key, ca: ca.crt}", "", "credentials", "refuses our certificate strange.crt, of CN=stranger"},
		{"late", "{cert: late.crt, key: late.key, ca: ca.crt}", "", "credentials", "it has ended, so replace the file and its key"},
		{"distrust", "{cert: tls.crt, key: tls.key}", "", "certificate", "write tls: {ca: FILE}"},
		{"imposter", "{cert: tls.crt, key: tls.key, ca: strange-ca.crt}", "", "certificate", "check the file of tls.ca"},
		{"renamed", "{ca: ca.crt}", "", "certificate", "wanted to match localhost"},
		{"missing", "{cert: no.crt, key: no.key}", "", "credentials", "no.crt: no such file"},
		{"spoilt", "{cert: spoilt.crt, key: tls.key}", "", "credentials", "spoilt.crt with key tls.key: tls: failed to find any PEM data"},
	}
	flows, pipelines := "services:\n  - {id: away, url: "+curious.URL+"}\n", "pipelines:\n"
	for _, c := range cases {
		address := bank.URL
		if c.name == "renamed" {
			address = "https://localhost:" + port
		}
		request := c.request
		if request == "" {
			request = "{service: " + c.name + ", path: /" + c.name + "}"
		}
		flows += fmt.Sprintf("  - {id: %s, url: \"%s\", concurrency: fixed, tls: %s}\n", c.name, address, c.tls)
		pipelines += fmt.Sprintf("  - id: %s\n    shared-state: {class: null, why: null}\n    stages: [{id: s, handlers: [{id: h, request: %s, retry: {attempts: 1}, "+
			"on-error: [{on: [credentials, certificate], then: continue, result: {class: !$ error.class, why: !$ error.message}}]}]}]\n", c.name, request)
	}
	n := startGuarded(t, flows+pipelines, d.use)
	for _, c := range cases {
		v := n.ended(n.submit(c.name, 1)[0])
		class, why := "", fmt.Sprint(v.SharedState["why"])
		if v.SharedState["class"] != nil {
			class = fmt.Sprint(v.SharedState["class"])
		}
		if v.Status != model.Succeeded || class != c.class || !strings.Contains(why, c.want) {
			t.Errorf("%s: want %s and %q, have %s %s, %s: %s", c.name, c.class, c.want, v.Status, v.Error, class, why)
		}
	}
	heard, _ := bank.heard()
	if have := strings.Join(heard, ", "); have != "/fine shop, /to/"+away+" shop" {
		t.Errorf("have calls %s", have)
	}
	if heard, _ := curious.heard(); len(heard) != 0 {
		t.Errorf("want no call of a service whose issuer is not trusted, have %s", heard)
	}
	view, err := json.Marshal(n.ended(n.submit("fine", 1)[0]))
	if err != nil {
		t.Fatal(err)
	}
	kept := string(view)
	for _, name := range []string{n.file, n.file + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kept += string(data)
	}
	secret := strings.Split(string(private), "\n")[1]
	if strings.Contains(kept, "PRIVATE KEY") || strings.Contains(kept, secret[:20]) {
		t.Error("want nothing of the key in the store or the API")
	}
}

// A renewed certificate is used within a second, calls go on meanwhile, and connections with the old one end.
func TestCertificatesAreRenewedUnderCalls(t *testing.T) {
	t.Parallel()
	ours := enginetest.NewIssuer(t)
	cert, key := ours.Leaf("server", nil)
	bank := newCertifiedService(t, ours, tls.RequireAndVerifyClientCert, cert, key)
	d := secretsDir{t, t.TempDir()}
	cert, key = ours.Leaf("first", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(10 * time.Minute) })
	d.put("tls.crt", cert, "tls.key", key, "ca.crt", ours.CA)
	var logs lockedBuffer
	n := startGuarded(t, strings.ReplaceAll(`
services: [{id: bank, url: "URL", tls: {cert: tls.crt, key: tls.key, ca: ca.crt}}]
pipelines: [{id: p, stages: [{id: s, handlers: [{id: h, request: {service: bank, path: /}, retry: {attempts: 1}}]}]}]
`, "URL", bank.URL), d.use, func(o *engine.Options) { o.Log = slog.New(slog.NewTextHandler(&logs, nil)) })
	calls := func() {
		t.Helper()
		for _, run := range n.submit("p", 10) {
			if v := n.ended(run); v.Status != model.Succeeded {
				t.Fatalf("have %s: %s", v.Status, v.Error)
			}
		}
	}
	calls()
	if own := n.Services()[0].Certificate; own == nil || own.File != "tls.crt" || !own.EndsSoon(time.Now()) {
		t.Errorf("want a certificate that ends soon, have %+v", own)
	}

	// Only one of the files is new, so they do not fit. It is logged once, and calls go on.
	cert, key = ours.Leaf("second", nil)
	d.put("tls.crt", cert)
	const unusable = "cannot be used, so its calls go on"
	patience.Until(t, "the new certificate is read", func() bool {
		calls()
		return strings.Contains(logs.String(), unusable)
	})
	d.put("tls.key", key)
	patience.Until(t, "calls have the new certificate, and connections with the old one have ended", func() bool {
		calls()
		_, open := bank.heard()
		return open["second"] > 0 && open["first"] == 0
	})
	if own := n.Services()[0].Certificate; own == nil || own.EndsSoon(time.Now()) {
		t.Errorf("want the end of the new certificate, have %+v", own)
	}
	if text := logs.String(); strings.Count(text, unusable) != 1 || !strings.Contains(text, "were read again") || strings.Contains(text, "PRIVATE") {
		t.Errorf("have logs\n%s", text)
	}
}

// A lockedBuffer keeps what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
