package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/handlers/webhooks"
	"procaas/handlers/webhooks/language"
)

const hooks = `
webhooks:
  - id: repo
    scheme: github
    secrets: [old-hook, new-hook]
    type: !$ headers['x-github-event']
    key: !$ body.repository
  - {id: chat, scheme: slack, secrets: [new-hook], type: asked, key: !$ body.user_id}
  - {id: bare, scheme: github, secrets: [lost-hook], type: push}
pipelines:
  - id: work
    on: [push, asked]
    shared-state: {ref: ""}
    stages: [{id: a, handlers: [{id: keep, set: {ref: !$ "event.payload.ref ?? ''"}}]}]
`

// A provider sends signed requests to a webhook.
type provider struct {
	t      *testing.T
	server string
	hook   *language.Webhook
}

// send sends a body, and returns the status and the body of the answer.
func (p *provider) send(body, secret, delivery string, now time.Time, header ...string) (int, string) {
	p.t.Helper()
	h, err := webhooks.Sign(p.hook, []byte(body), secret, delivery, now)
	if err != nil {
		p.t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, p.server+"/v1/webhooks/"+p.hook.ID, bytes.NewBufferString(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header = h
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply.StatusCode, strings.TrimSpace(string(text))
}

// TestWebhooksBecomeRunsAndSurviveKill9 sends requests as providers do. What is not signed, old or unwanted becomes no event, and
// each delivery that was acknowledged has exactly one run, also after kill -9.
func TestWebhooksBecomeRunsAndSurviveKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	pipelines, secrets := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(pipelines, "p.yaml"): hooks, filepath.Join(secrets, "old-hook"): "old", filepath.Join(secrets, "new-hook"): "new",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &crashing{
		t: t, store: "sqlite:" + filepath.Join(t.TempDir(), "hooks.db"), listen: freeAddress(t), pipelines: pipelines,
		flags: []string{"--secrets-dir", secrets},
	}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	repo := &provider{t, "http://" + c.listen, &language.Webhook{ID: "repo", Scheme: "github"}}
	chat := &provider{t, "http://" + c.listen, &language.Webhook{ID: "chat", Scheme: "slack"}}
	now := time.Now()
	push := func(n int, secret string) (int, string) {
		return repo.send(`{"repository":"r-`+strconv.Itoa(n)+`","ref":"main"}`, secret, "d-"+strconv.Itoa(n), now, "X-GitHub-Event", "push")
	}
	for _, x := range []struct {
		what   string
		send   func() (int, string)
		status int
		want   string
	}{
		{"signed with the old secret", func() (int, string) { return push(1, "old") }, 202, `{"event":"d-1","run":"`},
		{"signed with the new secret", func() (int, string) { return push(2, "new") }, 202, `{"event":"d-2","run":"`},
		{"the same delivery with another count of attempts", func() (int, string) {
			return repo.send(`{"repository":"r-1","ref":"main","attempt":2}`, "old", "d-1", now, "X-GitHub-Event", "push")
		}, 200, `"duplicate":true`},
		{"another secret", func() (int, string) { return push(3, "wrong") }, 401, `"code":"bad_signature"`},
		{"ping", func() (int, string) { return repo.send(`{}`, "new", "d-4", now, "X-GitHub-Event", "ping") }, 200, `"ignored":`},
		{"a type that no pipeline serves", func() (int, string) {
			return repo.send(`{"repository":"r"}`, "new", "d-5", now, "X-GitHub-Event", "star")
		}, 200, `no pipeline serves events of the type star`},
		{"no key", func() (int, string) {
			return repo.send(`{"repository":true}`, "new", "d-6", now, "X-GitHub-Event", "push")
		}, 422, `key of webhook repo`},
		{"chat", func() (int, string) { return chat.send(`{"event_id":"Ev1","user_id":"u"}`, "new", "", now) }, 200, ``},
		{"the challenge", func() (int, string) {
			return chat.send(`{"type":"url_verification","challenge":"c-1"}`, "new", "", now)
		}, 200, `c-1`},
		{"a replay after an hour", func() (int, string) {
			return chat.send(`{"event_id":"Ev2","user_id":"u"}`, "new", "", now.Add(-time.Hour))
		}, 401, `over the tolerance of 5m0s`},
	} {
		if status, text := x.send(); status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s: want %d and %s, have %d and %s", x.what, x.status, x.want, status, text)
		}
	}
	c.wantConsent(ctx)
	parcel := &provider{t, "http://" + c.listen, &language.Webhook{ID: "rep", Scheme: "github"}}
	if status, text := parcel.send(`{}`, "new", "d-9", now); status != 404 || !strings.Contains(text, `no file declares a webhook`) || strings.Contains(text, "repo") {
		t.Errorf("a stranger must not learn which webhooks there are, have %d and %s", status, text)
	}

	bare := &provider{t, "http://" + c.listen, &language.Webhook{ID: "bare", Scheme: "github"}}
	if status, text := bare.send(`{}`, "new", "d-9", now); status != 503 || strings.Contains(text, "lost-hook") {
		t.Errorf("a stranger must not learn which secret is not there, have %d and %s", status, text)
	}
	c.wantListed(ctx, "lost-hook")

	_, text := push(7, "new")
	server.kill()
	server = c.start(ctx)
	run := strings.TrimSuffix(text[strings.LastIndex(text, `:"`)+2:], `"}`)
	c.await(ctx, run, model.Succeeded, "")
	if status, text := push(7, "new"); status != 200 || !strings.Contains(text, `"duplicate":true`) {
		t.Errorf("want a duplicate after the crash, have %d %s", status, text)
	}
	for range 25 { // guesses
		push(8, "wrong")
	}
	if status, text := push(8, "wrong"); status != 429 || !strings.Contains(text, "too_many_failures") {
		t.Errorf("want guesses bounded, have %d %s", status, text)
	}
	c.wantListed(ctx, "many requests without a valid signature")
	server.terminate()
}

// wantListed looks for the reason of a refusal in the list of webhooks.
func (c *crashing) wantListed(ctx context.Context, why string) {
	c.t.Helper()
	var out bytes.Buffer
	code := Main(ctx, []string{"webhooks", "list", "--server", "http://" + c.listen}, cli.Streams{Out: &out, Err: &out})
	if code != cli.ExitFine || !strings.Contains(out.String(), why) {
		c.t.Errorf("want %q in the list, have %d and %s", why, code, out.String())
	}
}

// wantConsent makes the handshake by which senders of CloudEvents ask for consent.
func (c *crashing) wantConsent(ctx context.Context) {
	c.t.Helper()
	for path, status := range map[string]int{"/v1/events": 200, "/v1/webhooks/repo": 200, "/v1/webhooks/nothing": 404} {
		r, err := http.NewRequestWithContext(ctx, http.MethodOptions, "http://"+c.listen+path, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		r.Header.Set("WebHook-Request-Origin", "sender.example.com")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			c.t.Fatal(err)
		}
		reply.Body.Close()
		if origin := reply.Header.Get("WebHook-Allowed-Origin"); reply.StatusCode != status || (origin == "sender.example.com") != (status == 200) {
			c.t.Errorf("OPTIONS %s: want %d and consent, have %d and %q", path, status, reply.StatusCode, origin)
		}
	}
}
