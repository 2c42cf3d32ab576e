package handlers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/secrets"
	"procaas/engine/sqlite"
)

// A guardedService issues tokens, and answers calls that have one. It sends back what it got.
type guardedService struct {
	*httptest.Server

	mu      sync.Mutex // guards the following
	expires int        // seconds, as the issuer says; 0 for none
	busy    string     // Retry-After of the next answer of the issuer, a 503; empty for none
	refuse  string     // what the issuer answers instead: a status, a space and a body
	valid   map[string]bool
	issued  []string
	asked   []string // bodies and clients of the requests for tokens
	times   []time.Time
	got     []string // paths of calls with their credentials
}

func newGuardedService(t *testing.T) *guardedService {
	s := &guardedService{valid: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.issue)
	mux.HandleFunc("/api/", s.answer)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *guardedService) issue(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	user, password, _ := r.BasicAuth()
	s.asked = append(s.asked, user+":"+password+" "+string(body))
	w.Header().Set("Content-Type", "application/json")
	s.times = append(s.times, time.Now())
	if s.busy != "" {
		w.Header().Set("Retry-After", s.busy)
		s.busy = ""
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if status, body, ok := strings.Cut(s.refuse, " "); ok {
		var code int
		fmt.Sscan(status, &code)
		w.WriteHeader(code)
		io.WriteString(w, body)
		return
	}
	token := fmt.Sprintf("t0ken-number-%d", len(s.issued))
	s.issued, s.valid[token] = append(s.issued, token), true
	reply := map[string]any{"access_token": token, "token_type": "bearer"}
	if s.expires > 0 {
		reply["expires_in"] = s.expires
	}
	json.NewEncoder(w).Encode(reply)
}

func (s *guardedService) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := r.Header.Get("Authorization")
	s.got = append(s.got, r.URL.Path+" "+given)
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/api/tokens" && !s.valid[strings.TrimPrefix(given, "Bearer ")] {
		w.WriteHeader(http.StatusUnauthorized)
	}
	json.NewEncoder(w).Encode(map[string]string{"you-sent": given})
}

// change sets something of the service.
func (s *guardedService) change(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
}

// said returns the calls and the requests for tokens so far.
func (s *guardedService) said() (got, asked []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...), append([]string(nil), s.asked...)
}

const guardedFlows = `
services:
  - {id: open, url: "URL/api"}
  - {id: basic, url: "URL/api", auth: {basic: {username: shop, password: !secret PASSWORD}}}
  - {id: bearer, url: "URL/api", auth: {bearer: !secret BEARER}}
  - id: tokens
    url: "URL/api"
    concurrency: fixed
    auth: {oauth2: {token-url: "URL/token", client-id: shop, client-secret: !secret CLIENT, scopes: [read, write], params: {audience: orders}}}
  - {id: body, url: "URL/api", auth: {oauth2: {token-url: "URL/token", client-id: shop, client-secret: !secret CLIENT, send-in: body}}}
  - {id: nobody, url: "URL/api", auth: {oauth2: {token-url: "http://127.0.0.1:1/token", client-id: shop, client-secret: !secret CLIENT}}}
pipelines:
  - id: all
    shared-state: {seen: null}
    stages:
      - id: calls
        handlers:
          - {id: open, request: {service: open, path: /open}}
          - {id: basic, request: {service: basic, path: /basic}, result: {seen: !$ sources.basic.response}}
          - {id: bearer, request: {service: bearer, path: /bearer, redirects: 1}}
          - {id: url, request: {url: !$ "'URL/api/url?' + event.id"}}
          - {id: body, request: {service: body, path: /body}}
  - {id: token, stages: [{id: calls, handlers: [{id: get, request: {service: tokens, path: /tokens}, retry: {attempts: 1}}]}]}
  - {id: patient, stages: [{id: calls, handlers: [{id: get, request: {service: tokens, path: /tokens}, retry: {attempts: 2, min-delay: 1ms}}]}]}
  - id: handled
    shared-state: {why: null}
    stages:
      - id: calls
        handlers:
          - id: get
            request: {service: SERVICE, path: /tokens}
            retry: {attempts: 1}
            on-error: [{on: [credentials], then: continue, result: {why: !$ error.message}}]
`

var guardedSecrets = map[string]string{"PASSWORD": "s3cret-password", "BEARER": "s3cret-bearer", "CLIENT": "s3cret-of-client"}

// A guardedNode calls a guardedService.
type guardedNode struct {
	*engine.Engine
	t    *testing.T
	file string // of the store
}

func newGuardedNode(t *testing.T, s *guardedService, service string, change ...func(*engine.Options)) *guardedNode {
	t.Helper()
	return startGuarded(t, strings.NewReplacer("URL", s.URL, "SERVICE", service).Replace(guardedFlows), change...)
}

// startGuarded starts a node with these files.
func startGuarded(t *testing.T, text string, change ...func(*engine.Options)) *guardedNode {
	t.Helper()
	b, found := dsl.Load([]diag.File{{Name: "flows.yaml", Data: []byte(text)}}, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	if b == nil {
		t.Fatalf("have %v: %s", found[0], found[0].Message)
	}
	n := &guardedNode{t: t, file: filepath.Join(t.TempDir(), "s.db")}
	db, err := sqlite.Open(t.Context(), n.file, sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Bundle, o.Record = db.Ports(), addons.HandlerTypes(), b, 100
	o.Secrets = func(use secrets.Use) (string, error) {
		if text, ok := guardedSecrets[use.Name]; ok && use.To != "" {
			return text, nil
		}
		return "", fmt.Errorf("there is no secret %s for %q", use.Name, use.To)
	}
	for _, c := range change {
		c(&o)
	}
	n.Engine = enginetest.Start(t, o)
	return n
}

// submit begins runs of a pipeline.
func (n *guardedNode) submit(pipeline string, runs int) (ids []string) {
	n.t.Helper()
	for range runs {
		out, err := n.Submit(n.t.Context(), []intake.Submission{{Event: model.Event{Type: pipeline}}})
		if err != nil {
			n.t.Fatal(err)
		}
		ids = append(ids, out[0].Receipt.Run)
	}
	return ids
}

// ended waits until a run has ended.
func (n *guardedNode) ended(run string) (v checkpoint.RunView) {
	n.t.Helper()
	patience.Until(n.t, "the run has ended", func() bool {
		var err error
		if v, err = n.RunByID(n.t.Context(), run); err != nil {
			n.t.Fatal(err)
		}
		return v.Status != model.Running && v.Status != model.Waiting
	})
	return v
}

// Each service gets its own credentials, nobody else does, and nothing of them is kept although the service sends them back.
func TestCredentialsReachTheirServiceAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newGuardedService(t)
	n := newGuardedNode(t, s, "tokens")
	v := n.ended(n.submit("all", 1)[0])
	token := n.ended(n.submit("token", 1)[0])
	if v.Status != model.Succeeded || token.Status != model.Succeeded {
		t.Fatalf("have %s %s, and %s %s", v.Status, v.Error, token.Status, token.Error)
	}
	got, asked := s.said()
	for _, want := range []string{
		"/api/open ", "/api/basic Basic c2hvcDpzM2NyZXQtcGFzc3dvcmQ=", "/api/bearer Bearer s3cret-bearer", "/api/url ",
		"/api/body Bearer t0ken-number-", "/api/tokens Bearer t0ken-number-",
	} {
		found := 0
		for _, g := range got {
			if g == want || strings.HasSuffix(want, "-") && strings.HasPrefix(g, want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("want one call %q, have %q", want, got)
		}
	}
	all := strings.Join(asked, "\n")
	if !strings.Contains(all, "shop:s3cret-of-client audience=orders&grant_type=client_credentials&scope=read+write") ||
		!strings.Contains(all, ": client_id=shop&client_secret=s3cret-of-client&grant_type=client_credentials") {
		t.Errorf("have requests for tokens %s", all)
	}
	views, err := json.Marshal([]any{v, token})
	if err != nil {
		t.Fatal(err)
	}
	kept := string(views)
	for _, name := range []string{n.file, n.file + "-wal"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kept += string(data)
	}
	if !strings.Contains(kept, "you-sent") {
		t.Error("want what the services sent back in the store")
	}
	for _, secret := range []string{"s3cret-", "t0ken-number", "c2hvcDpzM2NyZXQt"} {
		if strings.Contains(kept, secret) {
			t.Errorf("want no %s in the store or the API", secret)
		}
	}
}

// Runs that need a token at once make one request for it, and calls go on while it is renewed.
func TestOneTokenServesAllRuns(t *testing.T) {
	t.Parallel()
	s := newGuardedService(t)
	n := newGuardedNode(t, s, "tokens")
	for _, run := range n.submit("token", 50) {
		if v := n.ended(run); v.Status != model.Succeeded {
			t.Fatalf("have %s: %s", v.Status, v.Error)
		}
	}
	if _, asked := s.said(); len(asked) != 1 {
		t.Errorf("want one request for a token, have %d", len(asked))
	}
	// All get a 401 with the token that they have, and another one after it.
	s.change(func() { clear(s.valid) })
	for _, run := range n.submit("token", 50) {
		if v := n.ended(run); v.Status != model.Succeeded {
			t.Fatalf("after the token was revoked: have %s: %s", v.Status, v.Error)
		}
	}
	if _, asked := s.said(); len(asked) != 2 {
		t.Errorf("want one more request for a token, have %d in all", len(asked))
	}
	// A service that refuses every token does not make the node ask for one at each call.
	s.change(func() { clear(s.valid) })
	for _, run := range n.submit("token", 5) {
		if v := n.ended(run); v.Status != model.Failed || v.ErrorClass != "401" || strings.Contains(v.Error, "t0ken") {
			t.Errorf("want a 401, have %s %s: %s", v.Status, v.ErrorClass, v.Error)
		}
	}
	if _, asked := s.said(); len(asked) != 2 {
		t.Errorf("want no further request within ten seconds, have %d in all", len(asked))
	}
}

// Tokens of a second are renewed while calls go on, and none of these fails.
func TestTokensAreRenewedBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	s := newGuardedService(t)
	s.expires = 1
	n := newGuardedNode(t, s, "tokens")
	calls := 0
	patience.Until(t, "three tokens have been issued", func() bool {
		for _, run := range n.submit("token", 20) {
			calls++
			if v := n.ended(run); v.Status != model.Succeeded {
				t.Fatalf("call %d: have %s: %s", calls, v.Status, v.Error)
			}
		}
		_, asked := s.said()
		return len(asked) >= 3
	})
}

// An issuer that asks for time gets it, and the call that waits for its token is made after that.
func TestIssuersGetTheTimeThatTheyAskFor(t *testing.T) {
	t.Parallel()
	s := newGuardedService(t)
	s.busy = "2" // longer than the pause after any failure
	n := newGuardedNode(t, s, "tokens")
	run := n.submit("patient", 1)[0]
	patience.Until(t, "the run has ended", func() bool { return n.ended(run).Status.Ended() }) // it is parked meanwhile
	v := n.ended(run)
	if v.Status != model.Succeeded {
		t.Errorf("have %s: %s", v.Status, v.Error)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.times) != 2 || s.times[1].Sub(s.times[0]) < 2*time.Second {
		t.Errorf("want another request after two seconds, have %s", s.times)
	}
}

// Without a token there is no call, and authors and operators learn why.
func TestCallsWithoutCredentialsSayWhy(t *testing.T) {
	t.Parallel()
	targets, err := outbound.ParseTargets([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, service, refuse, want string
		change                      func(*engine.Options)
	}{
		{
			name: "refused", service: "tokens", refuse: `401 {"error":"invalid_client","error_description":"no s3cret-of-client here"}`,
			want: "/token: 401 invalid_client no *** here; check client-id, the secret of client-secret, scopes and send-in",
		},
		{name: "broken", service: "tokens", refuse: "503 sorry", want: "/token: 503; the node asks again"},
		{name: "elsewhere", service: "tokens", refuse: "302 there", want: "/token: 302; check token-url"},
		{name: "no token", service: "tokens", refuse: "200 {}", want: "/token: oauth2: server response missing access_token; check that it"},
		{name: "nobody", service: "nobody", want: "no access token from http://127.0.0.1:1/token: dial tcp 127.0.0.1:1: connect: connection refused"},
		{
			name: "no secret", service: "tokens", want: `auth of service tokens: there is no secret CLIENT for "tokens"`,
			change: func(o *engine.Options) {
				o.Secrets = func(use secrets.Use) (string, error) {
					return "", fmt.Errorf("there is no secret %s for %q", use.Name, use.To)
				}
			},
		},
		{
			name: "not allowed", service: "tokens", want: "the operator of this server does not let flows connect to",
			change: func(o *engine.Options) { o.Targets = targets },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newGuardedService(t)
			s.refuse = c.refuse
			change := c.change
			if change == nil {
				change = func(*engine.Options) {}
			}
			n := newGuardedNode(t, s, c.service, change)
			v := n.ended(n.submit("handled", 1)[0])
			why := fmt.Sprint(v.SharedState["why"])
			if v.Status != model.Succeeded || !strings.Contains(why, c.want) || strings.Contains(why, "s3cret") {
				t.Errorf("want %q, have %s %s: %s", c.want, v.Status, v.Error, why)
			}
			if got, _ := s.said(); len(got) != 0 {
				t.Errorf("want no call without credentials, have %q", got)
			}
		})
	}
}

// A request with a url gets no credentials, and none sets the header of these itself.
func TestValidateNamesRequestsAndTheCredentialsOfTheirService(t *testing.T) {
	t.Parallel()
	_, found := dsl.Load([]diag.File{{Name: "flows.yaml", Data: []byte(`
services:
  - {id: bank, url: "https://bank.example.com", auth: {bearer: !secret BANK}}
pipelines:
  - id: p
    stages:
      - id: a
        handlers:
          - {id: own, request: {service: bank, path: /a, headers: {authorization: !secret BANK}}}
          - {id: url, request: {url: "https://bank.example.com/b"}}
          - {id: fine, request: {service: bank, path: /c, headers: {X-A: b}}}
`)}}, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	var have []string
	for _, d := range found {
		if d.Code == rules.Auth {
			have = append(have, fmt.Sprintf("%d %s: %s", d.Span.Start.Line, d.Severity, d.Message))
		}
	}
	want := []string{
		`9 error: the auth of service "bank" sets the header Authorization`,
		`10 warning: a request with a url gets no credentials, although service "bank" has auth`,
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("-want +have\n%s", d)
	}
}
