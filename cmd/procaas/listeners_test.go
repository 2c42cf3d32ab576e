package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A public address has what submitters and workers call. The console, other calls and profiles are at that of admins, and metrics
// at a third.
func TestAddressesServeTheirPart(t *testing.T) {
	t.Parallel()
	admin, metrics := freeAddress(t), freeAddress(t)
	cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", "sqlite:"+filepath.Join(t.TempDir(), "s.db"), "--log-format", "json",
		"--pipelines", "../../deploy/flows", "--listen", "127.0.0.1:0", "--listen-admin", admin, "--listen-metrics", metrics, "--pprof")
	cmd.Env = append(os.Environ(), "PROCAAS_ADMIN_TOKEN="+adminToken)
	public := startSignalled(t, cmd).ready()
	for _, c := range []struct {
		method, path string
		want         [3]int // public, admin, metrics
	}{
		{"GET", "/healthz", [3]int{200, 200, 200}},
		{"GET", "/readyz", [3]int{200, 200, 200}},
		{"GET", "/metrics", [3]int{404, 200, 200}},
		{"POST", "/v1/events", [3]int{415, 415, 404}},
		{"OPTIONS", "/v1/events", [3]int{200, 200, 404}}, // of providers, as POST of webhooks
		{"GET", "/v1/runs", [3]int{404, 200, 404}},
		{"GET", "/admin/v1/tokens", [3]int{404, 200, 404}},
		{"GET", "/console/runs", [3]int{404, 200, 404}},
		{"GET", "/", [3]int{404, 200, 404}},
		{"GET", "/openapi.json", [3]int{404, 200, 404}},
		{"GET", "/debug/pprof/cmdline", [3]int{404, 200, 404}},
		{"GET", "/nothing", [3]int{404, 404, 404}},
	} {
		for i, at := range []string{public, "http://" + admin, "http://" + metrics} {
			r, err := http.NewRequestWithContext(t.Context(), c.method, at+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+adminToken)
			reply, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = reply.Body.Close()
			if have := reply.StatusCode; have != c.want[i] && (have < 300 || have >= 400 || c.want[i] != 200) && (have != 422 && have != 400 || c.want[i] != 415) {
				t.Errorf("%s %s at %d: have %d, want %d", c.method, c.path, i, have, c.want[i])
			}
		}
	}
	without, err := http.Get("http://" + admin + "/debug/pprof/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	_ = without.Body.Close()
	if without.StatusCode != http.StatusUnauthorized {
		t.Errorf("a profile without a token: have %d, want 401", without.StatusCode)
	}
}
