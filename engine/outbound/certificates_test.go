package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"procaas/dsl/tree"
)

// A redirect to another host takes no certificate along, and neither does one that leads back from there.
func TestRedirectsTakeNoCertificateAlong(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var heard []string
	start := func(answer func(w http.ResponseWriter, r *http.Request)) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := "nobody"
			if len(r.TLS.PeerCertificates) > 0 {
				who = "us"
			}
			mu.Lock()
			heard = append(heard, r.URL.Path+" "+who)
			mu.Unlock()
			answer(w, r)
		}))
		s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	var home *httptest.Server
	away := start(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, home.URL+"/back", http.StatusFound) })
	home = start(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/out":
			http.Redirect(w, r, home.URL+"/within", http.StatusFound)
		case "/within":
			http.Redirect(w, r, away.URL+"/away", http.StatusFound)
		case "/back":
			http.Redirect(w, r, home.URL+"/end", http.StatusFound)
		}
	})
	// The certificate of the server is its own issuer, and does for a client, too.
	pair := home.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})),
		"key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
	certificates := Certificates{Read: func(_ *tree.Service, file string) (string, error) { return files[file], nil }}
	b := &tree.Bundle{Services: []*tree.Service{
		{ID: "home", URL: home.URL, KeepAlive: true, TLS: &tree.Certificates{Cert: "crt", Key: "key", CA: "crt"}}, {ID: "away", URL: away.URL, KeepAlive: true},
	}}
	shared := ForServices(b, 4, nil, nil)
	trusted := x509.NewCertPool()
	trusted.AddCert(home.Certificate())
	shared.Transport.(*transport).secure.TLSClientConfig = &tls.Config{RootCAs: trusted}
	client := certificates.Secured(shared, b)["home"]
	client.CheckRedirect = nil
	reply, err := client.Get(home.URL + "/out")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	client.CloseIdleConnections()
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"/out us", "/within us", "/away nobody", "/back nobody", "/end nobody"}; !slices.Equal(heard, want) {
		t.Errorf("want %s, have %s", want, strings.Join(heard, ", "))
	}
}
