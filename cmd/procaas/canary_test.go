package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/store"
)

// canaries are what must never come out again, by the names of the secrets.
var canaries = map[string]string{
	"HEADER": "c4nary/Header+key=7Q", "QUERY": `c4nary query "8" & 9`, "FORM": "c4naryform-9é<b>", "BODY": "c4nary\\body\n0x1",
}

// An echoing service sends back what it was sent, in the way that its path says.
type echoing struct {
	mu   sync.Mutex
	seen strings.Builder // all that came
}

func (e *echoing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = r.ParseForm()
	form, _ := url.ParseQuery(string(body))
	var sent any
	_ = json.Unmarshal(body, &sent)
	parts := map[string]any{
		"header": r.Header.Get("X-Secret"), "auth": r.Header.Get("Authorization"), "query": r.URL.Query().Get("q"), "raw": r.URL.RawQuery,
		"form": form.Get("f"), "body": sent, "text": string(body),
	}
	flat, _ := json.Marshal(parts)
	e.mu.Lock()
	fmt.Fprintln(&e.seen, parts)
	e.mu.Unlock()

	// The secrets of this request, as they are.
	plain := fmt.Sprint(parts["header"], "\n", parts["query"], "\n", parts["form"], "\n", sent)
	switch r.URL.Path {
	case "/json":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(flat)
	case "/text":
		fmt.Fprint(w, plain)
	case "/error":
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, plain)
	case "/error-json":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = w.Write(flat)
	case "/long":
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, strings.Repeat("x", 280), plain, strings.Repeat(plain, 200))
	case "/encoded":
		w.WriteHeader(http.StatusBadRequest)
		for _, v := range parts {
			text := fmt.Sprint(v)
			fmt.Fprintln(w, hex.EncodeToString([]byte(text)), base64.StdEncoding.EncodeToString([]byte("user:"+text)), url.QueryEscape(text),
				url.PathEscape(text))
		}
	case "/no-json":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, plain)
	case "/redirect":
		w.Header().Set("Location", "http://"+url.PathEscape(r.Header.Get("X-Secret"))+".example/?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
	case "/no-http":
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprintf(c, "%s\r\nX: %s\r\n\r\n", strings.ReplaceAll(plain, "\n", " "), r.Header.Get("X-Secret"))
			c.Close()
		}
	}
}

// echoModes are the paths of the service; each has a pipeline.
var echoModes = []string{"json", "text", "error", "error-json", "long", "encoded", "no-json", "redirect", "no-http"}

// canaryFiles writes pipelines that send each secret in each mode, and keep what
// comes back.
func canaryFiles(service string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "services: [{id: echo, url: %s}]\npipelines:\n", service)
	for _, mode := range echoModes {
		fmt.Fprintf(&b, `  - id: %[1]s
    shared-state: {reply: null, failure: null}
    stages:
      - id: send
        handlers:
          - id: body
            critical: false
            retry: {attempts: 2, min-delay: 1ms, jitter: 0}
            request:
              {service: echo, path: /%[1]s, query: {q: !secret QUERY}, redirects: 1, headers: {X-Secret: !secret HEADER, Authorization: !secret HEADER}, body: {in: [!secret BODY]}}
            result: {reply: !$ sources.body.response}
          - id: form
            retry: {attempts: 2, min-delay: 1ms, jitter: 0}
            request: {service: echo, path: /%[1]s, query: {q: !secret QUERY}, headers: {X-Secret: !secret HEADER}, form: {f: !secret FORM}}
            result: {failure: !$ sources.form.response}
`, mode)
	}
	return b.String()
}

// lockedBuffer may be written by many.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestSecretsAndTokensNeverComeOut drives runs that send secrets to services that
// echo them in every way, and calls by tokens, good and wrong. Then it searches all
// that came out of the program.
func TestSecretsAndTokensNeverComeOut(t *testing.T) { // not parallel: it sets the environment
	var spans lockedBuffer
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(&spans, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	var alerts lockedBuffer
	pager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(&alerts, r.Body) }))
	t.Cleanup(pager.Close)

	echo := &echoing{}
	service := httptest.NewServer(echo)
	t.Cleanup(service.Close)
	dir, db := t.TempDir(), t.TempDir()
	write := func(path, text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secrets := t.TempDir()
	for name, text := range canaries {
		write(filepath.Join(secrets, name), text+"\n")
	}
	write(filepath.Join(dir, "a.yaml"), canaryFiles(service.URL))
	const admin, wrong, hook, marker = "c4nary-admin-token-1357", "c4nary-wrong-token", "c4nary-web-hook", "seen-everywhere"

	var out, logs lockedBuffer
	server, stop := runNode(t, serve.Flags{
		Store: "sqlite:" + filepath.Join(db, "o.db"), Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 64,
		Lease: 4 * time.Second,
		Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "debug", Pipelines: []string{dir}, SecretsDir: secrets,
		Access: serve.AccessFlags{File: write(filepath.Join(t.TempDir(), "admin"), admin+"\n"), Open: []string{"events"}},
		Alerts: serve.AlertFlags{Webhooks: []string{pager.URL + "/" + hook}},
	}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &logs})

	o := &operated{t: t, dir: dir, server: server, client: client.New(server, admin)}
	made, err := o.client.NewToken(t.Context(), wire.NewToken{Name: "screen", Role: "viewer", Reason: marker})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range echoModes {
		if _, err := o.client.SubmitEvent(t.Context(),
			wire.Event{Type: mode, Key: mode, Payload: map[string]any{"marker": marker}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all runs to end", func() bool {
		eventually(t, "an alert", func() bool { return strings.Contains(alerts.text(), "send/form") })
		page, err := o.client.Runs(t.Context(), store.RunFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(page.Items, func(r checkpoint.RunView) bool { return !r.Status.Ended() })
	})
	page, err := o.client.Runs(t.Context(), store.RunFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	cameOut, shown := map[string]string{}, bytes.Buffer{}
	for _, token := range []string{admin, made.Secret, "", wrong} { // too many wrong ones shut the others out
		for _, line := range []string{
			"runs list", "runs list --format json", "runs show " + page.Items[0].ID, "audit", "audit --format json",
			"token list", "nodes", "reload",
		} {
			Main(t.Context(), append(strings.Fields(line), "--server", server, "--token", token),
				cli.Streams{In: strings.NewReader(""), Out: &shown, Err: &shown})
		}
		for name, reply := range everyReply(t, server, token, page.Items) {
			cameOut[fmt.Sprintf("%s for %.10s", name, token)] = reply
		}
	}
	stop()
	cameOut["the command line"], cameOut["standard output"] = shown.String(), out.text()
	cameOut["the log"], cameOut["traces"], cameOut["alerts"] = logs.text(), spans.text(), alerts.text()
	files, err := filepath.Glob(filepath.Join(db, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cameOut["the store "+filepath.Base(file)] = string(data)
	}

	all := map[string]string{"admin": admin, "screen": made.Secret, "wrong": wrong, "webhook": hook}
	for name, text := range canaries {
		all[name] = text
		if !strings.Contains(echo.seen.String(), strings.Split(text, "\n")[0]) {
			t.Errorf("the service has not seen %s, so nothing was tried", name)
		}
	}
	for where, text := range cameOut {
		for name, secret := range all {
			for how, form := range formsOfCanary(secret) {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%s holds %s, %s: …%q…", where, name, how, text[max(0, i-80):min(len(text), i+len(form)+80)])
				}
			}
		}
	}
	// What may be seen is seen there, so the search searches.
	for _, where := range []string{"GET /v1/runs/" + page.Items[0].ID + " for c4nary-adm", "the store o.db", "the command line"} {
		if !strings.Contains(cameOut[where], marker) {
			t.Errorf("%s does not hold what may be seen: %.200s", where, cameOut[where])
		}
	}
	for _, where := range []string{"the log", "traces"} {
		if !strings.Contains(cameOut[where], "send/form") {
			t.Errorf("%s does not tell of the handlers: %.200s", where, cameOut[where])
		}
	}
}

// formsOfCanary returns the ways in which a secret might come out.
func formsOfCanary(secret string) map[string]string {
	quoted, _ := json.Marshal(secret)
	forms := map[string]string{
		"as it is": secret, "in JSON": strings.Trim(string(quoted), `"`), "in Go": strings.Trim(fmt.Sprintf("%q", secret), `"`),
		"in a query": url.QueryEscape(secret), "in a path": url.PathEscape(secret),
		"in hexadecimal": hex.EncodeToString([]byte(secret)), "in HEXADECIMAL": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"in part": secret[:min(len(secret), 10)],
	}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
		forms[fmt.Sprint("in base64 after ", before)] = text[4 : len(text)-4]
	}
	return forms
}

// everyReply calls all that can be read, with a token.
func everyReply(t *testing.T, server, token string, runs []checkpoint.RunView) map[string]string {
	t.Helper()
	get := func(method, path string) string {
		r, err := http.NewRequestWithContext(t.Context(), method, server+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		var b bytes.Buffer
		_ = reply.Header.Write(&b)
		_, _ = io.Copy(&b, reply.Body)
		return b.String()
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	description := get(http.MethodGet, "/openapi.json")
	if err := json.Unmarshal([]byte(description[strings.Index(description, "{"):]), &doc); err != nil {
		t.Fatal(err)
	}
	replies := map[string]string{}
	for path, methods := range doc.Paths {
		if methods["get"] == nil {
			continue
		}
		for _, run := range runs {
			filled := strings.NewReplacer("{id}", run.ID, "{cluster}", "fanout", "{partition}", "0", "{flow}", run.Flow, "{key}", run.Key, "{map}",
				"no-map", "{subscription}", "none", "{trigger}", "none", "{pipeline}", run.Pipeline, "{version}", run.Bundle, "{other}", run.Bundle).Replace(path)
			if strings.Contains(filled, "{") {
				t.Errorf("GET %s has a parameter that this test does not know", path)
			}
			name := "GET " + filled
			if replies[name] == "" {
				replies[name] = get(http.MethodGet, filled)
			}
		}
	}
	return replies
}
