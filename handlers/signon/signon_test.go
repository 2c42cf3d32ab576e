package signon

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"procaas/dsl/diag"
	"procaas/engine/api/problem"
	"procaas/engine/credentials"
)

// A house is an issuer, and a desk that trusts it.
type house struct {
	*testing.T
	*mockoidc.MockOIDC
	desk *Desk
	file string
}

const houseRules = `audience: [procaas, other]
rules:
  - {when: {groups: platform}, role: admin}
  - {when: {groups: [shop, shop-on-call], email: ann@example.com}, role: operator, paths: [shop]}
  - {when: {realm.roles: deploy}, role: deployer, owners: [team-shop]}
`

func newHouse(t *testing.T) *house {
	t.Helper()
	m, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Shutdown() }) // it may have ended before
	h := &house{T: t, MockOIDC: m, file: filepath.Join(t.TempDir(), "access.yaml")}
	h.write(houseRules)
	h.desk = h.opened()
	return h
}

// write replaces the file. Its time differs, as that of a file which was changed later.
func (h *house) write(text string) {
	h.Helper()
	if err := os.WriteFile(h.file, []byte("issuer: "+h.Issuer()+"\n"+text), 0o600); err != nil {
		h.Fatal(err)
	}
	if h.desk == nil {
		return
	}
	h.desk.mu.Lock()
	defer h.desk.mu.Unlock()
	h.desk.looked = time.Time{}
	later := h.desk.changed.Add(time.Second)
	if err := os.Chtimes(h.file, later, later); err != nil {
		h.Fatal(err)
	}
}

func (h *house) opened() *Desk {
	h.Helper()
	d, err := Open(h.file)
	if err != nil {
		h.Fatal(err)
	}
	d.Use(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, slog.New(slog.DiscardHandler))
	return d
}

// claims are those of a token that is good, changed by more.
func (h *house) claims(more jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": h.Issuer(), "aud": []string{"procaas"}, "sub": "17", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"email": "ann@example.com", "email_verified": true, "groups": []string{"platform"},
	}
	for name, v := range more {
		if v == nil {
			delete(c, name)
			continue
		}
		c[name] = v
	}
	return c
}

func (h *house) sign(more jwt.MapClaims) string {
	h.Helper()
	token, err := h.Keypair.SignJWT(h.claims(more))
	if err != nil {
		h.Fatal(err)
	}
	return token
}

// want checks who bears a token, or why nobody does.
func (h *house) want(what, token, want string) {
	h.Helper()
	who, known, err := h.desk.Identify(h.Context(), token)
	if !known {
		h.Fatalf("%s: the token has no form that is known", what)
	}
	have := ""
	if err == nil {
		var g credentials.Grant
		g, err = h.desk.Grant(who)
		have = fmt.Sprintf("%s is %s %v %v", who.Name, g.Role, g.Paths, g.Owners)
	}
	if err != nil {
		have = err.Error()
	}
	if !strings.Contains(have, want) {
		h.Errorf("%s:\nwant %s\nhave %s", what, want, have)
	}
}

func at(d time.Duration) int64 { return time.Now().Add(d).Unix() }

func TestTokensOfTheIssuer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, c := range []struct {
		what string
		more jwt.MapClaims
		want string
	}{
		{"a good token", nil, "ann@example.com is admin"},
		{"one audience of several", jwt.MapClaims{"aud": []string{"x", "other"}}, "is admin"},
		{"one audience alone", jwt.MapClaims{"aud": "procaas"}, "is admin"},
		{"for others", jwt.MapClaims{"aud": "shop"}, "claim aud: want procaas or other, have shop"},
		{"for nobody", jwt.MapClaims{"aud": nil}, "claim aud: it is missing"},
		{"of another issuer", jwt.MapClaims{"iss": "https://evil.example"}, `claim iss: want http://127.0.0.1`},
		{"of no issuer", jwt.MapClaims{"iss": nil}, `have ""`},
		{"of nobody", jwt.MapClaims{"sub": nil}, "claim sub: it is missing"},
		{"expired", jwt.MapClaims{"exp": at(-time.Hour)}, "claim exp: the token expired at "},
		{"expired by a clock that goes wrong", jwt.MapClaims{"exp": at(-skew / 2)}, "is admin"},
		{"for ever", jwt.MapClaims{"exp": nil}, "claim exp: it is missing"},
		{"for ever in words", jwt.MapClaims{"exp": "never"}, "claim exp: it is missing"},
		{"not yet", jwt.MapClaims{"nbf": at(time.Hour)}, "claim nbf: the token is only good from "},
		{"nearly", jwt.MapClaims{"nbf": at(skew / 2)}, "is admin"},
		{"of tomorrow", jwt.MapClaims{"iat": at(24 * time.Hour)}, "claim iat: "},

		{"bound to a path", jwt.MapClaims{"groups": "shop"}, "ann@example.com is operator [shop] []"},
		{"of another person", jwt.MapClaims{"groups": "shop", "email": "bob@example.com"},
			"rule 2 wants the claim email with ann@example.com, and the token has bob@example.com; rule 3 wants the claim realm.roles with deploy, which the token lacks"},
		{"who claims to be", jwt.MapClaims{"groups": "shop", "email_verified": false}, "the issuer does not say email_verified: true"},
		{"who says nothing of it", jwt.MapClaims{"groups": "shop", "email_verified": nil}, "the issuer does not say email_verified: true"},
		{"a program", jwt.MapClaims{"groups": nil, "email": nil, "realm": map[string]any{"roles": []string{"x", "deploy"}}}, "sub:17 is deployer [] [team-shop]"},
		{"whom no rule fits", jwt.MapClaims{"groups": []string{"design"}}, "no rule of " + h.file + " fits: rule 1 wants the claim groups with platform, and the token has design"},
		{"who is called like the engine", jwt.MapClaims{"email": nil, "sub": "admin"}, "sub:admin is admin"},
		{"with a name for terminals", jwt.MapClaims{"email": nil, "sub": "a\x1b[2Jb"}, "claim sub: want a name"},
	} {
		h.want(c.what, h.sign(c.more), c.want)
	}
}

// A caller must not sign for itself: not with the public key as a secret, without a signature, or with a key that it names itself.
func TestSelfMadeTokensAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	kid, err := h.Keypair.KeyID()
	if err != nil {
		t.Fatal(err)
	}
	public, err := h.Keypair.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	self, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		t.Fatal(err)
	}
	make := func(m jwt.SigningMethod, key any, header map[string]any) string {
		token := jwt.NewWithClaims(m, h.claims(nil))
		token.Header["kid"] = kid
		for name, v := range header {
			token.Header[name] = v
		}
		text, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	h.want("HMAC by the public key", make(jwt.SigningMethodHS256, public, nil), "claim alg: ")
	h.want("no signature", make(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil), "claim alg: ")
	h.want("another key under the name of one", make(jwt.SigningMethodRS256, self.PrivateKey, nil), "claim kid: the signature is not by that key")
	h.want("a key that it brings along", make(jwt.SigningMethodRS256, self.PrivateKey, map[string]any{"kid": "mine", "jku": "http://127.0.0.1:1/keys",
		"jwk": json.RawMessage(`{"kty":"oct","k":"AAAA"}`)}), "claim ")
	good := h.sign(nil)
	first, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	other := strings.Split(h.sign(jwt.MapClaims{"sub": "18"}), ".")[1]
	h.want("changed claims", first+"."+other+"."+signature, "claim kid: the signature is not by that key")
	h.want("a cut signature", first+"."+body+".", "claim ")
	if _, known, _ := h.desk.Identify(t.Context(), "procaas_abc"); known {
		t.Error("a token of this server is taken for one of the issuer")
	}
}

func TestKeysRotate(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	before := h.sign(nil)
	h.want("the first key", before, "is admin")
	next, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		t.Fatal(err)
	}
	h.Keypair = next
	h.want("a new key", h.sign(nil), "is admin")
	h.want("a key that was withdrawn", before, "claim kid: the key ")

	// Keys that nobody knows do not make the node ask the issuer as often as somebody likes.
	for range 2 * keysAtOnce {
		other, err := h.Keypair.SignJWT(h.claims(nil))
		if err != nil {
			t.Fatal(err)
		}
		head := strings.NewReplacer("+", "-", "/", "_").Replace("eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ") // kid x
		h.want("an unknown key", head+other[strings.Index(other, "."):], `claim kid: the key "x" is none of `)
	}
	if h.desk.providers[h.Issuer()].unknown.Tokens() >= 1 {
		t.Error("want readings for unknown keys used up")
	}
	h.want("a known key meanwhile", h.sign(nil), "is admin")
}

func TestIssuerIsAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	token := h.sign(nil)
	h.want("before", token, "is admin")
	if err := h.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := h.desk.providers[h.Issuer()].read(t.Context()); err == nil {
		t.Fatal("want the issuer away")
	}
	h.want("with the keys that were read", token, "is admin")
	if h.desk.Away()[h.Issuer()] == nil {
		t.Error("want the issuer known to be away")
	}

	h.desk = h.opened()
	_, _, err := h.desk.Identify(t.Context(), token)
	if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Code != problem.NotReady || !strings.Contains(p.Detail, h.Issuer()) {
		t.Errorf("want that the node is not ready to check it, have %v", err)
	}
	if errors.Is(err, credentials.ErrUnknownToken) {
		t.Error("want no caller blamed for it")
	}
}

func TestFileIsReadAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	token := h.sign(nil)
	h.want("before", token, "is admin")
	h.write("audience: procaas\nrules:\n  - {when: {groups: platform}, role: viewer}\n")
	h.want("a smaller role", token, "is viewer")
	h.write("audience: procaas\nrules:\n  - {when: {groups: platform}, rol: viewer}\n")
	h.want("a file with an error", token, "is viewer")
	h.write("audience: shop\nrules:\n  - {when: {groups: platform}, role: viewer}\n")
	h.want("another audience", token, "claim aud: want shop, have procaas")
	h.write("console: {id: procaas}\nrules:\n  - {when: {groups: platform}, role: viewer}\n")
	h.want("no audience", token, "claim aud: this server takes no tokens")
}

func TestFileIsChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{}":                   `has no "issuer"`,
		"issuer: x\nrules: []": "is no address of an issuer",
		"issuer: http://a.example\nlogin: {id: x}\nrules: [{role: viewer}]":                                  "http is only for this machine",
		"issuer: https://a.example\nrules: [{role: viewer}]":                                                 "the file signs nobody on",
		"issuer: https://a.example\naudience: x\nrules: [{role: viewr}]":                                     "viewr",
		"issuer: https://a.example\naudience: x\nrules: [{role: admin}]":                                     "makes everybody an admin",
		"issuer: https://a.example\naudience: x\nrules: [{role: viewer}, {role: operator, when: {a: b}}]":    "rule 2 never counts",
		"issuer: https://a.example\naudience: x\nrules: [{role: viewer, owners: a}]":                         "only a deployer has owners",
		"issuer: https://a.example\naudience: x\nrules: [{role: deployer, paths: a}]":                        "is not bound to paths",
		"issuer: https://a.example\naudience: x\nrules: [{role: viewer, paths: /a}]":                         "is no path",
		"issuer: https://a.example\naudience: x\nrules: [{role: viewer, when: {a: []}}]":                     "no value of the claim a fits",
		"issuer: https://a.example\nlogin: {id: x, secret-file: y}\nrules: [{role: viewer}]":                 "has neither a secret",
		"issuer: https://a.example\nconsole: {id: x, address: https://b.example/c}\nrules: [{role: viewer}]": "is no address of a console",
		"issuer: https://a.example\nissuer: https://b.example":                                               "issuer",
		"issuers: []": "the list of issuers is empty",
		"issuers: [{issuer: https://a.example, audience: x, rules: [{role: viewer}]}, {id: b, issuer: https://b.example, audience: x, rules: [{role: viewer}]}]":        "one of several issuers has no id",
		"issuers: [{id: a, issuer: https://a.example, audience: x, rules: [{role: viewer}]}, {id: a, issuer: https://b.example, audience: x, rules: [{role: viewer}]}]": `"a" is the id of another issuer`,
		"issuers: [{id: a, issuer: https://a.example, audience: x, rules: [{role: viewer}]}, {id: b, issuer: https://a.example, audience: x, rules: [{role: viewer}]}]": "https://a.example is in the list already",
		"issuers:\n  - {id: a, issuer: https://a.example, audience: x, rules: [{role: viewer}]}\n  - {id: b, issuer: https://b.example, rules: [{role: viewer}]}":       "the file signs nobody on by https://b.example",
		"issuers: [{id: a, issuer: https://a.example, audience: x, rules: [{role: viewer}]}]\nrules: [{role: viewer}]":                                                  "rules",
		"- a": "a file must be a mapping",
	} {
		f, found := Parse(diag.File{Name: "access.yaml", Data: []byte(text)})
		have := ""
		for _, d := range found {
			have += d.Message + "; " + d.Hint + "\n"
		}
		if f != nil || !strings.Contains(have, want) {
			t.Errorf("%s\nwant %s\nhave %s", text, want, have)
		}
	}
}

// The claim iss chooses among several issuers: the keys, the audience, the rules and the name in the audit are those of one.
func TestSeveralIssuers(t *testing.T) {
	t.Parallel()
	staff, ci := newHouse(t), newHouse(t)
	key, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		t.Fatal(err)
	}
	ci.Keypair = key
	write := func(of string) {
		t.Helper()
		text := "issuers:\n" + of
		if err := os.WriteFile(staff.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(id, issuer, audience, role string) string {
		return fmt.Sprintf("  - id: %s\n    issuer: %s\n    audience: %s\n    console: {id: web}\n    rules: [{when: {groups: platform}, role: %s}]\n", id, issuer, audience, role)
	}
	write(entry("staff", staff.Issuer(), "procaas", "operator") + entry("ci", ci.Issuer(), "deploys", "deployer"))
	staff.desk = staff.opened()
	staff.want("of the first", staff.sign(nil), "staff:ann@example.com is operator")
	staff.want("of the second", ci.sign(jwt.MapClaims{"aud": "deploys", "email": nil}), "ci:sub:17 is deployer")
	staff.want("of the second for the audience of the first", ci.sign(nil), "claim aud: want deploys, have procaas")
	staff.want("of the first by the key of the second", ci.sign(jwt.MapClaims{"iss": staff.Issuer()}), "claim kid: ")
	staff.want("of nobody here", staff.sign(jwt.MapClaims{"iss": "https://evil.example"}),
		fmt.Sprintf("claim iss: want %s or %s, have %q", staff.Issuer(), ci.Issuer(), "https://evil.example"))
	staff.want("of no issuer", staff.sign(jwt.MapClaims{"iss": nil}), "claim iss: want ")
	staff.want("whom no rule of theirs fits", ci.sign(jwt.MapClaims{"aud": "deploys", "groups": "design"}), "no rule of issuer ci in "+staff.file+" fits")
	if have := staff.desk.Entrances("/console/audit"); len(have) != 2 || have[1].Name != "ci" || have[1].Address != StartPath+"?issuer=ci&next=%2Fconsole%2Faudit" {
		t.Errorf("have %+v, want an entrance for each", have)
	}

	// The second one goes away: only its people notice. What was known of the first is kept when the file changes.
	if err := ci.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := staff.desk.providers[ci.Issuer()].read(t.Context()); err == nil {
		t.Fatal("want the issuer away")
	}
	if away := staff.desk.Away(); away[staff.Issuer()] != nil || away[ci.Issuer()] == nil {
		t.Errorf("have %v, want only the second away", away)
	}
	before := staff.desk.providers[staff.Issuer()]
	write(entry("staff", staff.Issuer(), "procaas", "viewer"))
	staff.desk.mu.Lock()
	staff.desk.looked = time.Time{}
	staff.desk.mu.Unlock()
	token := ci.sign(jwt.MapClaims{"aud": "deploys"})
	staff.want("of one that was removed", token, "claim iss: ")
	staff.want("of the one that stayed", staff.sign(nil), "staff:ann@example.com is viewer")
	if staff.desk.providers[staff.Issuer()] != before {
		t.Error("want the keys of an issuer that stays kept")
	}
}
