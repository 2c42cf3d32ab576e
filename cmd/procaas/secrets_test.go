package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/outbound"
)

const strongToken = "procaas_3kYw0Qm8sVxJ5tPz7RbLc2DnFh6GaUeT4iOoWqXy1Zs"

// Authors who can send the admin token anywhere are admins.
func TestServeRefusesAnAdminTokenAmongTheSecrets(t *testing.T) { // not parallel: it sets the environment
	dir := t.TempDir()
	flows, outside := filepath.Join(dir, "flows.yaml"), filepath.Join(dir, "admin")
	write := func(path, text string) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(flows, "pipelines: [{id: p, stages: [{id: a, handlers: [{id: h, set: {}}]}]}]\n")
	write(outside, strongToken+"\n")
	link := func(from, to string) string {
		write(to+".d", "")
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
		return to
	}
	hash, err := credentials.HashToken(strongToken)
	if err != nil {
		t.Fatal(err)
	}
	same, within := filepath.Join(dir, "same"), filepath.Join(dir, "within")
	write(filepath.Join(within, "push", "OTHER"), strongToken)
	write(filepath.Join(dir, "hashed", "admin"), fmt.Sprintf("sha256:%x", hash))
	write(filepath.Join(dir, "copied", "TOKEN"), strongToken)
	link(outside, filepath.Join(dir, "linked", "TOKEN"))
	link(filepath.Join(dir, "copied"), filepath.Join(dir, "alias"))
	for name, flags := range map[string][]string{
		"the file itself":         {"--admin-token-file", write(filepath.Join(same, "admin"), strongToken), "--secrets-dir", same},
		"a link to it":            {"--admin-token-file", outside, "--secrets-dir", filepath.Join(dir, "linked")},
		"a link to the directory": {"--admin-token-file", outside, "--secrets-dir", filepath.Join(dir, "alias")},
		"a copy":                  {"--admin-token-file", outside, "--secrets-dir", filepath.Join(dir, "copied")},
		"a copy of a flag":        {"--admin-token", strongToken, "--secrets-dir", filepath.Join(dir, "copied")},
		"a copy of a hash":        {"--admin-token", fmt.Sprintf("sha256:%x", hash), "--secrets-dir", filepath.Join(dir, "copied")},
		"the secret of a service": {"--admin-token-file", outside, "--secrets-dir", within},
		"its hash beside secrets": {"--admin-token-file", filepath.Join(dir, "hashed", "admin"), "--secrets-dir", filepath.Join(dir, "hashed")},
		"the environment":         {"--admin-token-file", outside},
	} {
		if name == "the environment" {
			t.Setenv("PROCAAS_SECRET_TOKEN", strongToken)
		}
		var errs bytes.Buffer
		ctx, cancel := patience.Context(t.Context(), 20*time.Second) // a server that starts
		args := append([]string{"serve", "--store", "sqlite:" + filepath.Join(dir, "p.db"), "--listen", "127.0.0.1:0", "--pipelines", flows},
			flags...)
		code := Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &errs, Err: &errs})
		cancel()
		if code != cli.ExitUsage || !strings.Contains(errs.String(), "is the admin token") &&
			!strings.Contains(errs.String(), "holds the admin token") {
			t.Errorf("%s: want it refused, have exit code %d: %s", name, code, &errs)
		}
		os.Unsetenv("PROCAAS_SECRET_TOKEN")
	}
}

const secretive = `
services:
  - {id: bank, url: URL/bank}
  - {id: push, url: URL/push}
pipelines:
  - {id: honest, stages: [{id: a, handlers: [{id: h, request: {service: bank, path: /, headers: {X-A: !secret BANK}}, retry: {attempts: 1}}]}]}
  - {id: greedy, stages: [{id: a, handlers: [{id: h, request: {service: push, path: /, headers: {X-A: !secret BANK}}, retry: {attempts: 1}}]}]}
`

// What a flow sends, and where to, is the decision of the operator and the author.
func TestOperatorsBoundWhatFlowsSendAndWhere(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path+" "+r.Header.Get("X-A")]++
	}))
	t.Cleanup(service.Close)
	secrets := t.TempDir()
	if err := os.MkdirAll(filepath.Join(secrets, "bank"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, "bank", "BANK"), []byte("s3cr3t"), 0o600); err != nil {
		t.Fatal(err)
	}
	flows := t.TempDir()
	if err := os.WriteFile(filepath.Join(flows, "flows.yaml"), []byte(strings.ReplaceAll(secretive, "URL", service.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pipeline, fails string
		targets         []string
	}{
		{"honest", "", nil},
		{"honest", "", []string{"127.0.0.0/8"}},
		{"honest", "", []string{"elsewhere.example", "127.0.0.1"}},
		{"honest", "", []string{strings.TrimPrefix(service.URL, "http://")}},
		{"honest", "--allow-target has 10.0.0.0/8, bank.example", []string{"10.0.0.0/8", "bank.example"}},
		{"honest", "--allow-target has 127.0.0.1:1", []string{"127.0.0.1:1"}},
		{"greedy", "not kept for push", nil},
	} {
		server := startNode(t, "sqlite:"+filepath.Join(t.TempDir(), "s.db"), flows, func(f *serve.Flags) {
			f.SecretsDir, f.Targets = secrets,
				c.targets
		})
		client := client.New(server, "")
		receipt, err := client.SubmitEvent(t.Context(), wire.Event{Type: c.pipeline})
		if err != nil {
			t.Fatal(err)
		}
		var run checkpoint.RunView
		eventually(t, "the run to end", func() bool {
			if run, err = client.Run(t.Context(), receipt.Run); err != nil {
				t.Fatal(err)
			}
			return run.Status.Ended()
		})
		text := fmt.Sprintf("%+v", run)
		if (run.Status == model.Succeeded) != (c.fails == "") || !strings.Contains(text, c.fails) {
			t.Errorf("%s with %v: want %q, have %s", c.pipeline, c.targets, c.fails, text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 1 || seen["/bank/ s3cr3t"] != 4 {
		t.Errorf("want 4 requests to the bank with its secret, have %v", seen)
	}
}

func TestWrongTargetsAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "http://a.example", "a.example/x", "a.example:0x50", "a.example:70000", "*.example", "a b"} {
		if _, err := outbound.ParseTargets([]string{target}); err == nil {
			t.Errorf("want %q refused", target)
		}
	}
}
