package outbound

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"procaas/dsl/tree"
)

func TestClientReachesDeclaredHostsOnly(t *testing.T) {
	t.Parallel()
	var reached int
	serve := func(http.ResponseWriter, *http.Request) { reached++ }
	declared := httptest.NewServer(http.HandlerFunc(serve))
	defer declared.Close()
	other := httptest.NewServer(http.RedirectHandler(declared.URL, http.StatusFound))
	defer other.Close()

	client := ForServices(&tree.Bundle{Services: []*tree.Service{{ID: "s", URL: declared.URL + "/base"}}}, 4, nil, nil)
	defer client.CloseIdleConnections()
	resp, err := client.Post(declared.URL+"/anything", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp, err = client.Get(other.URL); err == nil {
		resp.Body.Close()
		t.Fatal("another host was reached")
	}
	if !isRefused(err) || !strings.Contains(err.Error(), "is not declared") {
		t.Errorf("want an error that repeating cannot mend, have %v", err)
	}
	if reached != 1 {
		t.Errorf("want one request, have %d", reached)
	}

	open := NewClient(Reach{Written: []string{other.URL + "/x"}})
	defer open.CloseIdleConnections()
	if resp, err = open.Get(other.URL); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Errorf("want the redirect left to the handler, have %s", resp.Status)
	}
}

// isRefused reports whether repeating a call cannot mend its error.
func isRefused(err error) bool {
	var r refusal
	return errors.As(err, &r) && r.Permanent()
}

// The transport below the check of requests checks again: what is dialled is what
// counts.
func TestDialChecksTheHostAgain(t *testing.T) {
	t.Parallel()
	client := ForServices(&tree.Bundle{Services: []*tree.Service{{ID: "s", URL: "http://service.example"}}}, 4, nil, nil)
	_, err := client.Transport.(*transport).lean.dial(t.Context(), "tcp", "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "is not declared") {
		t.Errorf("want the address refused, have %v", err)
	}
}

func TestHostsHaveTheirPorts(t *testing.T) {
	t.Parallel()
	hosts := hostSet(hostsOf([]string{"http://A.example/x", "https://b.example", "http://[::1]:8080", "not a url", "/path"}))
	for addr, want := range map[string]bool{
		"a.example:80": true, "a.example:443": false, "b.example:443": true, "B.EXAMPLE:443": true,
		"[::1]:8080": true, "[::1]:80": false, "c.example:80": false,
	} {
		if have := hosts.check(addr) == nil; have != want {
			t.Errorf("%s: want %v, have %v", addr, want, have)
		}
	}
}
