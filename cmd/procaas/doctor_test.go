package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/cli"
)

// TestDoctorFindsWhatIsWrong harms one thing after the other, sees the finding, follows its remedy, and sees the finding go.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flows := filepath.Join(dir, "flows")
	if err := os.CopyFS(flows, os.DirFS("../../deploy/flows")); err != nil {
		t.Fatal(err)
	}
	dsn := "sqlite:" + filepath.Join(dir, "s.db")
	env := append(os.Environ(), "PROCAAS_ADMIN_TOKEN="+adminToken, "PROCAAS_TOKEN="+adminToken)
	serve := exec.CommandContext(t.Context(), "procaas", "serve", "--store", dsn, "--listen", "127.0.0.1:0", "--log-format", "json", "--pipelines", flows)
	serve.Env = env
	at := startSignalled(t, serve).ready()
	run := func(args ...string) (text string, code int) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "procaas", args...)
		c.Env = env
		out, err := c.CombinedOutput()
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), c.ProcessState.ExitCode()
	}
	finds := func(want string, code int, args ...string) {
		t.Helper()
		if text, have := run(append([]string{"doctor"}, args...)...); !strings.Contains(text, want) || have != code {
			t.Errorf("doctor %q: want %q and exit code %d, have %d and\n%s", args, want, code, have, text)
		}
	}
	mend := func(args ...string) {
		t.Helper()
		if text, code := run(append(args, "--server", at)...); code != cli.ExitFine {
			t.Fatalf("procaas %q: exit code %d\n%s", args, code, text)
		}
	}
	finds("has what the server has", cli.ExitFine, flows, "--server", at, "--store", dsn)
	finds("every page was read", cli.ExitFine, "--store", dsn)

	file := filepath.Join(flows, "ping.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, "# a word more\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	finds("ping.yaml is changed", cli.ExitFindings, flows, "--server", at)
	mend("release", "deploy", flows, "--reason", "drift")
	finds("has what the server has", cli.ExitFine, flows, "--server", at)

	mend("token", "new", "--name", "eve", "--role", "viewer", "--expires", "24h", "--reason", "a day")
	finds("the token of eve ends at", cli.ExitFindings, "--server", at)
	mend("token", "new", "--name", "eve-2", "--role", "viewer", "--expires", "720h", "--reason", "a month")
	mend("token", "revoke", "eve", "--reason", "replaced")
	finds("none of which ends within 14 days", cli.ExitFine, "--server", at)

	mend("switch", "keep", "ping/only/pong", "--reason", "always")
	mend("switch", "off", "ping", "--force", "--reason", "not now")
	finds("ping/only/pong is kept in the flow, but ping is off", cli.ExitFindings, "--server", at)
	mend("switch", "on", "ping", "--reason", "again")
	finds("none of which contradict", cli.ExitFine, "--server", at, "--store", dsn)
	if err := os.WriteFile(filepath.Join(flows, "stuck.yaml"), []byte(`
flows: [{id: stuck, key: !$ event.payload.id}]
pipelines: [{id: stuck, flow: stuck, stages: [{id: s, handlers: [{id: h, fail: {message: no stock}}]}]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	mend("release", "deploy", flows, "--reason", "more")
	mend("submit", "--type", "stuck", "--payload", `{"id": "o-1"}`)
	eventually(t, "doctor to find the key", func() bool {
		text, code := run("doctor", "--server", at)
		return code == cli.ExitFindings && strings.Contains(text, "1 run of stuck failed, which holds up") && strings.Contains(text, "runs list --status failed --pipeline stuck")
	})
	mend("runs", "cancel", "o-1")
	eventually(t, "doctor to find nothing", func() bool {
		text, code := run("doctor", "--server", at)
		return code == cli.ExitFine && strings.Contains(text, "none holds up its key or waits for a decision; 0 failed ones are kept")
	})
	finds("MiB are free beside the store", cli.ExitFine, "--store", dsn)

	kept := filepath.Join(dir, "config", "procaas", "tokens.json")
	login := fmt.Sprintf(`{%q: {"token": %q, "expires": %q}}`, at, adminToken, time.Now().Add(10*time.Minute).UTC().Format(time.RFC3339))
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, []byte(login), 0o600)); err != nil {
		t.Fatal(err)
	}
	env = append(env, "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "PROCAAS_TOKEN=")
	finds("procaas login --server "+at, cli.ExitFindings, "--server", at)

	finds("Is a server running there?", cli.ExitBroken, "--server", "http://127.0.0.1:1")
	finds("start it, or name its address by --server", cli.ExitFindings, "--server", "http://127.0.0.1:1", "--store", dsn)
	finds("want postgres://", cli.ExitUsage, "--store", "mysql:x")
}

// TestDoctorFindsWhatNodesDisagreeAbout has a server that says what a cluster does not do at will.
func TestDoctorFindsWhatNodesDisagreeAbout(t *testing.T) {
	t.Parallel()
	answers := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	defer server.Close()
	const gonePath = "a has a control, but the present pipelines have no such path"
	const undecided = "2 runs of work wait for a decision, the first since "
	const node = `{"node": %d, "name": "n%[1]d", "alive": %t, "runs": %d, "bundle": %q}`
	flagged := func(name, retention string) string {
		return fmt.Sprintf(`{"name": %q, "alive": true, "bundle": "abc", "flags": {"retention": %q, "lease": "4s"}}`, name, retention)
	}
	for _, c := range []struct {
		degraded, version string
		nodes             []string
		services          string
		subscriptions     string
		want              string
	}{
		{"", cli.Version(), []string{fmt.Sprintf(node, 1, true, 3, "abc"), fmt.Sprintf(node, 2, true, 0, "abc")}, "", "", ""},
		{"the cell b is away", cli.Version(), nil, "", "", "ready, but the cell b is away"},
		{"", "v0.0.1", nil, "", "", "the server has version v0.0.1"},
		{"", cli.Version(), []string{fmt.Sprintf(node, 1, true, 0, "abc"), fmt.Sprintf(node, 2, true, 0, "def")}, "", "", "served by different pipelines: abc by n1; def by n2"},
		{"", cli.Version(), nil, "", "", gonePath},
		{"", cli.Version(), nil, "", "", undecided},
		{
			"", cli.Version(), []string{flagged("a", "24h"), flagged("b", "48h"), flagged("c", "24h"), fmt.Sprintf(node, 1, true, 0, "abc")}, "", "",
			"--retention differs among nodes: 24h on a, c; 48h on b; the node with the shortest one removes runs of all",
		},
		{"", cli.Version(), []string{fmt.Sprintf(node, 1, false, 3, "abc")}, "", "", "n1 is dead and still has 3 runs"},
		{
			"", cli.Version(), nil, `{"id": "bank", "certificate": {"file": "bank.crt", "until": "2026-01-02T03:04:05Z", "renew_by": "2026-01-01T03:04:05Z"}}`, "",
			"what nodes show to service bank: bank.crt ends at 2026-01-02T03:04:05Z",
		},
		{
			"", cli.Version(), nil, `{"id": "customers", "down": true, "failing_since": "2026-01-01T03:04:05Z", "last_error": "connection refused"}`, "",
			"customers is down since ",
		},
		{
			"", cli.Version(), nil, `{"id": "customers"}`, `{"id": "orders", "state": "failing", "problem": "no servers"}, {"id": "b", "state": "reading"}`,
			"subscription orders is not read: no servers",
		},
	} {
		answers["/readyz"] = fmt.Sprintf(`{"status": "ready", "version": %q, "degraded": %q}`, c.version, c.degraded)
		answers["/admin/v1/nodes"] = `{"items": [` + strings.Join(c.nodes, ",") + `]}`
		answers["/admin/v1/tokens"] = `{"items": []}`
		answers["/v1/subscriptions"] = `{"items": [` + c.subscriptions + `]}`
		answers["/admin/v1/services"] = `{"items": [` + c.services + `]}`
		answers["/admin/v1/controls"] = `{"items": [{"path": "a", "enabled": true, "known": ` + strconv.FormatBool(c.want != gonePath) + `}]}`
		answers["/admin/v1/backlog"] = `{"parked": []}`
		if c.want == undecided {
			answers["/admin/v1/backlog"] = `{"parked": [{"pipeline": "work", "reason": "operator", "runs": 2, "since": "2026-01-01T03:04:05Z"}]}`
		}
		out := new(strings.Builder)
		code := Main(t.Context(), []string{"doctor", "--server", server.URL}, cli.Streams{In: strings.NewReader(""), Out: out, Err: out})
		want := cli.ExitFindings
		if c.want == "" {
			want = cli.ExitFine
		}
		if code != want || !strings.Contains(out.String(), c.want) {
			t.Errorf("want %q and exit code %d, have %d and\n%s", c.want, want, code, out)
		}
	}
}
