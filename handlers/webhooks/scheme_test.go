package webhooks_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/handlers"
	"procaas/handlers/webhooks"
	"procaas/handlers/webhooks/language"
)

// vectors are what providers document, but for that of Stripe, which was computed with another program.
var vectors = map[string]struct {
	secret, body string
	at           int64
	header       map[string]string
}{
	"github": {
		"It's a Secret to Everybody", "Hello, World!", 0,
		map[string]string{"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
	},
	"slack": {
		"8f742231b10e8888abcd99yyyzzz85a5",
		"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&" +
			"user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2F" +
			"commands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121." +
			"803a0bc887a14d10d2c447fce8b6703c",
		1531420618,
		map[string]string{
			"X-Slack-Request-Timestamp": "1531420618",
			"X-Slack-Signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
		},
	},
	"standard": {
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `{"test": 2432232314}`, 1614265330,
		map[string]string{
			"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330",
			"Webhook-Signature": "v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		},
	},
	"stripe": {
		"whsec_test_secret", `{"id":"evt_1"}`, 12345,
		map[string]string{"Stripe-Signature": "t=12345,v1=b99ec5f59dd69a44f5bcfd252ab7bc3d1bd191bd61c9b9ea85139b856a73bc6f,v0=6ffbb5"},
	},
}

func TestSignaturesOfProviders(t *testing.T) {
	t.Parallel()
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &language.Webhook{ID: "hook", Scheme: name, Tolerance: 5 * time.Minute}
			h := http.Header{}
			for key, value := range v.header {
				h.Set(key, value)
			}
			at := time.Unix(v.at, 0)
			verify := func(body string, now time.Time, secrets ...string) error {
				return webhooks.Verify(w, h, []byte(body), secrets, now)
			}
			if err := verify(v.body, at, v.secret); err != nil {
				t.Fatal(err)
			}
			if err := verify(v.body, at, "whsec_bmV4dA==", v.secret); err != nil {
				t.Errorf("a second secret: %v", err)
			}
			wantRefused(t, verify(v.body, at, "whsec_bmV4dA=="), "no secret of webhook hook made the signature")
			for i := range v.body {
				changed := []byte(v.body)
				changed[i] ^= 1
				wantRefused(t, verify(string(changed), at, v.secret), "no secret of webhook hook made the signature")
			}
			if name != "github" { // which signs no time
				if err := verify(v.body, at.Add(5*time.Minute), v.secret); err != nil {
					t.Error(err)
				}
				wantRefused(t, verify(v.body, at.Add(5*time.Minute+time.Second), v.secret), "301 s old, over the tolerance of 5m0s")
				wantRefused(t, verify(v.body, at.Add(-6*time.Minute), v.secret), "360 s ahead")
			}
			if name == "slack" {
				h.Set("X-Slack-Request-Timestamp", "1531420618000")
				wantRefused(t, webhooks.Verify(w, signedAgain(t, w, h, v.body, v.secret), []byte(v.body), []string{v.secret}, at), "no Unix time in seconds")
			}
			h.Del(firstHeader(name))
			wantRefused(t, verify(v.body, at, v.secret), "header "+firstHeader(name)+" with the signature is missing")
		})
	}
}

// signedAgain signs a body with the time in milliseconds.
func signedAgain(t *testing.T, w *language.Webhook, h http.Header, body, secret string) http.Header {
	t.Helper()
	again, err := webhooks.Sign(w, []byte(body), secret, "", time.Unix(1531420618000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if again.Get("X-Slack-Request-Timestamp") != h.Get("X-Slack-Request-Timestamp") {
		t.Fatal("the header has another time")
	}
	return again
}

func firstHeader(scheme string) string {
	return map[string]string{
		"github": "X-Hub-Signature-256", "slack": "X-Slack-Signature", "standard": "Webhook-Signature", "stripe": "Stripe-Signature",
	}[scheme]
}

func wantRefused(t *testing.T, err error, why string) {
	t.Helper()
	if _, ok := err.(*webhooks.RefusedError); !ok || !strings.Contains(err.Error(), why) { //nolint:errorlint // it is what the caller gets
		t.Errorf("want it refused because %q, have %v", why, err)
	}
}

// TestWhatIsSignedIsVerified signs bodies of each scheme, up to a MiB of bytes that are no text.
func TestWhatIsSignedIsVerified(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	large := make([]byte, 1<<20)
	_, _ = rand.Read(large)
	all := []*language.Webhook{{Scheme: "github"}, {Scheme: "stripe"}, {Scheme: "slack"}, {Scheme: "standard"}}
	for _, s := range []*language.Signature{
		{Header: "X-Sign", Encoding: "hex", Hash: "sha1", Signed: "{body}"},
		{Header: "X-Sign", Encoding: "base64", Hash: "sha512", Prefix: "v2,", Signed: "{timestamp}|{body}|end", Timestamp: "X-Time"},
	} {
		all = append(all, &language.Webhook{Scheme: "hmac", Signature: s})
	}
	for _, w := range all {
		w.Tolerance = time.Minute
		for _, body := range [][]byte{nil, []byte(`{"id":"1"}`), large} {
			h, err := webhooks.Sign(w, body, "whsec_c2VjcmV0", "delivery-1", now)
			if err != nil {
				t.Fatal(err)
			}
			if err := webhooks.Verify(w, h, body, []string{"whsec_c2VjcmV0"}, now); err != nil {
				t.Errorf("%s: %v", w.Scheme, err)
			}
			wantRefused(t, webhooks.Verify(w, h, append(bytes.Clone(body), ' '), []string{"whsec_c2VjcmV0"}, now), "no secret")
		}
	}
}

// load reads webhooks. Pipelines take all types.
func load(t *testing.T, text string) (*tree.Bundle, []diag.Diagnostic) {
	t.Helper()
	files := []diag.File{{Name: "hooks.yaml", Data: []byte(text)}}
	return dsl.Load(files, dsl.Options{Language: tree.NewLanguage(language.Section()), Types: engine.Types(handlers.All())})
}

const flow = `
pipelines:
  - id: push
    on: [push, paid, asked]
    shared-state: {done: false}
    stages: [{id: s, handlers: [{id: h, set: {done: true}}]}]
`

func TestRequestsBecomeEvents(t *testing.T) {
	t.Parallel()
	b, found := load(t, `
webhooks:
  - id: github
    scheme: github
    secrets: [s]
    when: !$ headers['x-github-event'] == 'push'
    type: !$ headers['x-github-event']
    key: !$ body.repository.id
    payload: {ref: !$ body.ref}
  - {id: stripe, scheme: stripe, secrets: [s], type: paid, key: !$ body.data.object.customer}
  - {id: slack, scheme: slack, secrets: [s], type: asked, key: !$ "body.user_id ?? body.user.id"}
  - {id: own, scheme: hmac, secrets: [s], signature: {header: X-S}, type: paid, event-id: !$ body.n, key: !$ body.n}
`+flow)
	if b == nil || len(found) > 0 {
		t.Fatal(found[0].Code, found[0].Message, found[0].Hint)
	}
	form := "application/x-www-form-urlencoded"
	for _, c := range []struct{ webhook, header, body, want string }{
		{"github", "X-Github-Event: push\nX-Github-Delivery: d-1", `{"ref":"main","repository":{"id":7}}`, "push webhooks/github d-1 7 map[ref:main]"},
		{"github", "X-Github-Event: star", `{}`, "ignored: when of the webhook does not want it"},
		{"github", "X-Github-Event: ping", `{}`, "ignored: GitHub only asks whether the address answers"},
		{"github", "X-Github-Event: push", `{"repository":{"id":7}}`, "error: event-id of webhook github: the delivery has no id"},
		{"github", "X-Github-Event: push", `{"repository":{}}`, "error: key of webhook github"},
		{"github", "X-Github-Event: push", `{`, "error: want a body of JSON or a form"},
		{"stripe", "", `{"id":"evt_1","data":{"object":{"customer":"cus_1"}}}`, "paid webhooks/stripe evt_1 cus_1 map[data:"},
		{"slack", "", `{"type":"url_verification","challenge":"abc"}`, "challenge: abc"},
		{"slack", "", `{"event_id":"Ev1","user_id":"U1"}`, "asked webhooks/slack Ev1 U1 map[event_id:Ev1 user_id:U1]"},
		{"slack", "Content-Type: " + form, `user_id=U1&trigger_id=T1&text=a+b`, "asked webhooks/slack T1 U1 map[text:a b trigger_id:T1 user_id:U1]"},
		{"slack", "Content-Type: " + form, `payload=%7B%22user%22%3A%7B%22id%22%3A%22U2%22%7D%2C%22trigger_id%22%3A%22T2%22%7D`, "asked webhooks/slack T2 U2 map["},
		{"own", "", `{"n":41}`, "paid webhooks/own 41 41 map[n:41]"},
		{"own", "", `{"n":true}`, "error: event-id of webhook own"},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(c.header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				h.Set(name, value)
			}
		}
		m, err := webhooks.Map(language.Of(b, c.webhook), h, []byte(c.body))
		have := strings.Join([]string{m.Event.Type, m.Event.Source, m.Event.ID, m.Event.Key, fmt.Sprint(m.Event.Payload)}, " ")
		switch {
		case err != nil:
			have = "error: " + err.Error()
		case m.Ignored != "":
			have = "ignored: " + m.Ignored
		case m.Challenge != "":
			have = "challenge: " + m.Challenge
		}
		if !strings.HasPrefix(have, c.want) {
			t.Errorf("%s %s:\nhave %s\nwant %s…", c.webhook, c.body, have, c.want)
		}
	}
}
