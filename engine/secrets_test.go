package engine

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"procaas/dsl"
)

// knowing gives secrets that were given out.
func knowing(t interface{ Fatal(...any) }, texts ...string) *Secrets {
	s := NewSecrets(func(s dsl.Secret) (string, error) { return s.Name, nil })
	for _, text := range texts {
		if have, err := s.Resolve(dsl.Secret{Name: text}); err != nil || have != text {
			t.Fatal(have, err)
		}
	}
	return s
}

// TestSecretsAreHiddenHoweverTheyComeBack lets a service echo any secret in many
// ways, in the midst of other text.
func TestSecretsAreHiddenHoweverTheyComeBack(t *testing.T) {
	t.Parallel()
	encodings := map[string]func(string) string{
		"as it is": func(s string) string { return s },
		"json":     func(s string) string { data, _ := json.Marshal(map[string]string{"a": s}); return string(data) },
		"quoted":   func(s string) string { return fmt.Sprintf("%q", s) },
		"query":    url.QueryEscape,
		"path":     url.PathEscape,
		"hex":      func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":      func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"basic":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) },
		"jwt":      func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("ab" + s + "cd")) },
	}
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[ -~é]{8,40}`).Filter(func(s string) bool { return strings.TrimSpace(s) == s }).Draw(t, "secret")
		other := rapid.StringMatching(`[a-z]{8,20}`).Draw(t, "other secret")
		before, after := rapid.StringMatching(`[A-Z ]{0,9}`).Draw(t, "before"), rapid.StringMatching(`[A-Z ]{0,9}`).Draw(t, "after")
		s := knowing(t, other, secret)
		for name, encode := range encodings {
			text := before + encode(secret) + after
			have := s.Hide(text)
			for how, form := range encodings {
				// The base64 of a longer text has the secret's in its midst.
				if how == "basic" || how == "jwt" || how == "base64" {
					continue
				}
				if inside := strings.Trim(form(secret), `{}:"a`); len(inside) > 5 && strings.Contains(have, inside) {
					t.Fatalf("%s: want it hidden, have %q of %q", name, have, text)
				}
			}
			if !strings.Contains(have, hidden) {
				t.Fatalf("%s: want something hidden, have %q of %q", name, have, text)
			}
		}
	})
}

func TestSecretsLeaveNothingInResults(t *testing.T) {
	t.Parallel()
	s := knowing(t, "c4nary-token", "7654321", "ab")
	cause := errors.New("GET http://x/?t=c4nary-token: ab")
	status := &StatusError{Status: 403, Method: "GET", URL: "http://x", Excerpt: "c4nary-token is wrong", Body: map[string]any{"token": "c4nary-token"}}
	r, err := s.result(Result{
		Response: map[string]any{
			"c4nary-token": []any{"x c4nary-token y", 7654321, 7.0, nil, true, map[string]any{"a": "ab"}}, "kept": "about",
		},
		Emit: []Event{{Payload: []any{"c4nary-token"}}},
	}, Permanent(errors.Join(cause, status)))
	want := Result{
		Response: map[string]any{"***": []any{"x *** y", "***", 7.0, nil, true, map[string]any{"a": "ab"}}, "kept": "about"},
		Emit:     []Event{{Payload: []any{"***"}}},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("-want +have\n%s", d)
	}
	if have := err.Error(); have != "GET http://x/?t=***: ***\n403 from GET http://x: *** is wrong" {
		t.Errorf("have %q", have)
	}
	if !IsPermanent(err) || !errors.Is(err, cause) || ClassOf(err) != "403" || fmt.Sprint(status.Body) != "map[token:***]" {
		t.Errorf("want what callers test kept, have %v, %v", err, status)
	}
	nothing := knowing(t)
	same := errors.New("c4nary-token")
	if _, err := nothing.result(Result{}, same); err != same {
		t.Errorf("want errors of calls without secrets as they are, have %v", err)
	}
}
