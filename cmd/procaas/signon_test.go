package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"procaas/engine/api/cli"
)

// People sign in at their issuer, and programs send its tokens. The file says what they may do, also after they have signed in.
func TestPeopleSignOnByTheirIssuer(t *testing.T) {
	t.Parallel()
	issuer, err := mockoidc.NewServer(nil)
	if err != nil {
		t.Fatal(err)
	}
	// The client of the command line has no secret, and this issuer wants one.
	if err := issuer.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.ParseForm() == nil && r.Form.Get("client_id") != "" && r.Form.Get("client_secret") == "" {
				r.Form.Set("client_secret", issuer.ClientSecret)
			}
			next.ServeHTTP(w, r)
		})
	}); err != nil {
		t.Fatal(err)
	}
	ann := &mockoidc.MockUser{Subject: "17", Email: "ann@example.com", EmailVerified: true, Groups: []string{"platform"}}
	if err := issuer.AddMiddleware(devicesOf(t, issuer, ann)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := issuer.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = issuer.Shutdown() }) // it may have ended before
	dir := t.TempDir()
	file := filepath.Join(dir, "access.yaml")
	write := func(role string) {
		t.Helper()
		text := fmt.Sprintf(`issuer: %s
audience: %s
login: {id: %[2]s, scopes: [email, groups]}
console: {id: %[2]s, secret-file: secret, scopes: [email, groups]}
rules:
  - {when: {groups: platform}, role: %s}
`, issuer.Issuer(), issuer.ClientID, role)
		for name, text := range map[string]string{file: text, filepath.Join(dir, "secret"): issuer.ClientSecret + "\n"} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("operator")
	cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--store", "sqlite:"+filepath.Join(dir, "s.db"), "--log-format", "json",
		"--pipelines", "../../deploy/flows", "--listen", "127.0.0.1:0", "--access", file)
	at := startSignalled(t, cmd).ready()
	bob := &mockoidc.MockUser{Subject: "18", Email: "bob@example.com", EmailVerified: true, Groups: []string{"design"}}

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: 30 * time.Second}
	page := func(from *http.Client, address, want string) {
		t.Helper()
		r, err := from.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if have := fmt.Sprintf("%d %s\n%s", r.StatusCode, r.Request.URL.Path, body); !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%s: want %s, have\n%s", address, want, have)
		}
	}
	page(browser, at+"/console/audit", `200 /console/sign-in(?s).*/v1/sign-on/start\?next=%2Fconsole%2Faudit"`)
	issuer.QueueUser(bob)
	page(browser, at+"/v1/sign-on/start", `403 /v1/sign-on/callback(?s).*wants the claim groups with platform, and the token has design`)
	page(browser, at+"/v1/sign-on/callback?code=x&state=y", `401 /v1/sign-on/callback(?s).*was not begun in this browser`)
	issuer.QueueUser(ann)
	page(browser, at+"/v1/sign-on/start?next=https://evil.example/", `200 /v1/sign-on/callback(?s).*content="0;url=/"`)
	page(browser, at+"/", `200 /\n`)
	page(browser, at+"/console/audit?kind=session", `200 /console/audit(?s).*ann@example\.com`)
	page(http.DefaultClient, at+"/console/audit", `200 /console/sign-in`)

	token, err := (&mockoidc.Session{User: ann, Scopes: []string{"email", "groups"}}).IDToken(issuer.Config(), issuer.Keypair, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	run := func(want string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "procaas", append(args, "--server", at)...)
		c.Env = append(os.Environ(), "PROCAAS_TOKEN="+token)
		out, err := c.CombinedOutput()
		if have := fmt.Sprint(string(out), err); !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%q: have %s, want %s", args, have, want)
		}
	}
	run(`<nil>`, "runs", "list")
	run(`<nil>`, "switch", "hold", "ping/only/pong", "--reason", "a try")
	run(`ann@example.com(?s).*a try`, "audit")
	run(`ann@example.com is an operator by rule 1 \(.*access.yaml:\d+\); the call needs an admin`, "token", "list")

	logsIn(t, issuer, ann, at, dir)

	// The issuer goes away: its tokens stay good, and so do the sessions. Then the file takes the role.
	if err := issuer.Shutdown(); err != nil {
		t.Fatal(err)
	}
	run(`<nil>`, "runs", "list")
	page(browser, at+"/", `200 /\n`)
	write("worker")
	deadline := time.Now().Add(time.Minute)
	for {
		c := exec.CommandContext(t.Context(), "procaas", "runs", "list", "--server", at)
		c.Env = append(os.Environ(), "PROCAAS_TOKEN="+token)
		if out, err := c.CombinedOutput(); err != nil {
			if !strings.Contains(string(out), "ann@example.com is a worker by rule 1") {
				t.Fatalf("have %s", out)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the file is not read again")
		}
	}
	page(browser, at+"/", `403 /\n(?s).*ann@example.com is a worker by rule 1`)
	write("viewer")
	signedOut := false
	for !signedOut && time.Now().Before(deadline) {
		r, err := browser.PostForm(at+"/console/sign-out", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		signedOut = r.StatusCode == http.StatusOK
	}
	page(browser, at+"/", `200 /console/sign-in`)
}

// devicesOf makes the issuer sign a person in who uses a browser elsewhere. It stands in for that part of the issuer, which this one
// does not have: the address where a sign-in begins, and the token that waits for the person.
func devicesOf(t *testing.T, issuer *mockoidc.MockOIDC, who mockoidc.User) func(http.Handler) http.Handler {
	t.Helper()
	begins := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"device_code": "d", "user_code": "ABCD-EFGH", "verification_uri": "http://%s/device", "expires_in": 60, "interval": 1}`, r.Host)
	}))
	t.Cleanup(begins.Close)
	asked := false
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == mockoidc.DiscoveryEndpoint {
				inner := httptest.NewRecorder()
				next.ServeHTTP(inner, r)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(bytes.Replace(inner.Body.Bytes(), []byte("{"), []byte(`{"device_authorization_endpoint": "`+begins.URL+`",`), 1))
				return
			}
			if r.Method != http.MethodPost || r.ParseForm() != nil || r.Form.Get("device_code") != "d" {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if !asked {
				asked = true
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error": "authorization_pending"}`)
				return
			}
			token, err := (&mockoidc.Session{User: who, Scopes: []string{"email", "groups"}}).IDToken(issuer.Config(), issuer.Keypair, time.Now())
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(w, `{"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": %q}`, token)
		})
	}
}

// logsIn signs a person in on the command line: with their browser on this machine, and without a token in the environment.
func logsIn(t *testing.T, issuer *mockoidc.MockOIDC, who mockoidc.User, at, dir string) {
	t.Helper()
	env := append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "PROCAAS_TOKEN=")
	run := func(want string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "procaas", append(args, "--server", at)...)
		c.Env = env
		out, err := c.CombinedOutput()
		if have := fmt.Sprint(string(out), err); !regexp.MustCompile(want).MatchString(have) {
			t.Fatalf("%q: have %s, want %s", args, have, want)
		}
	}
	run(`needs the header Authorization`, "runs", "list")
	issuer.QueueUser(who)
	login := exec.CommandContext(t.Context(), "procaas", "login", "--server", at)
	login.Env = env
	told, err := login.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := login.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(told)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "http") {
			continue
		}
		r, err := http.Get(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
	}
	if err := login.Wait(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config", "procaas", "tokens.json")
	kept := func(change func(*cli.KeptToken)) (token string) {
		t.Helper()
		all := map[string]*cli.KeptToken{}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		if err != nil || all[at] == nil {
			t.Fatalf("have %v, %v, want a token for %s", all, err, at)
		}
		token = all[at].Token
		change(all[at])
		if data, err = json.Marshal(all); err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("want a file that only its user reads, have %v, %v", info, err)
	}
	run(`<nil>`, "runs", "list")

	// A token that has ended is renewed. Where the issuer refuses that, the command says so.
	kept(func(k *cli.KeptToken) { k.Token, k.Expires = "gone", time.Now() })
	run(`<nil>`, "runs", "list")
	if kept(func(k *cli.KeptToken) { k.Expires, k.Refresh = time.Now(), "unknown" }) == "gone" {
		t.Error("the token was not renewed")
	}
	run(`the login at .* ended at .*, and the issuer does not renew it \(40\d (?s).*sign in again`, "runs", "list")
	run(`enter the code ABCD-EFGH:\nhttp\S+/device\nsigned in to (?s).*<nil>`, "login", "--device")
	run(`<nil>`, "runs", "list")

	run(`there is no token for `, "login", "--forget")
	run(`needs the header Authorization`, "runs", "list")
}
