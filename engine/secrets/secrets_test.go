package secrets

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// knowing returns secrets that were given out.
func knowing(t interface{ Fatal(...any) }, texts ...string) *Set {
	s := New(func(s datum.Secret) (string, error) { return s.Name, nil })
	for _, text := range texts {
		if have, err := s.Resolve(datum.Secret{Name: text}); err != nil || have != text {
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
		"as it is":          func(s string) string { return s },
		"json":              func(s string) string { data, _ := json.Marshal(map[string]string{"a": s}); return string(data) },
		"quoted":            func(s string) string { return fmt.Sprintf("%q", s) },
		"query":             url.QueryEscape,
		"path":              url.PathEscape,
		"hex":               func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":               func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"base64":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"basic":             func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s)) },
		"ascii json":        func(s string) string { return `{"a": "` + escaped(s, `\u%04x`) + `"}` },
		"ASCII JSON":        func(s string) string { return escaped(s, `\u%04X`) },
		"all of it":         func(s string) string { return each(s, `\x%02x`) },
		"percent":           func(s string) string { return each(s, "%%%02x") },
		"twice":             func(s string) string { return url.QueryEscape(each(s, "%%%02X")) },
		"go ascii":          strconv.QuoteToASCII,
		"mail":              func(s string) string { return each(s, "=%02X") },
		"html":              func(s string) string { return strings.ReplaceAll(html.EscapeString(s), "é", "&eacute;") },
		"numbers":           func(s string) string { return strings.ReplaceAll(html.EscapeString(s), "é", "&#233;") },
		"hex html":          func(s string) string { return strings.ReplaceAll(html.EscapeString(s), "é", "&#xE9;") },
		"latin-1":           func(s string) string { return recoded(s)[1] },
		"query of latin-1":  func(s string) string { return each(recoded(s)[1], "%%%02X") },
		"base64 of latin-1": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(recoded(s)[1])) },
		"misread":           func(s string) string { return recoded(s)[2] },
		"utf-16":            func(s string) string { return recoded(s)[3] },
		"UTF-16":            func(s string) string { return recoded(s)[4] },
		"base64 of utf-16":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte(recoded(s)[3])) },
		"jwt":               func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("ab" + s + "cd")) },
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
				if how == "basic" || how == "jwt" || strings.HasPrefix(how, "base64") {
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

// each writes all bytes of a text in one way.
func each(s, format string) string {
	var out strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&out, format, s[i])
	}
	return out.String()
}

// escaped writes what is not ASCII, quotes and backslashes in one way.
func escaped(s, format string) string {
	var out strings.Builder
	for _, unit := range utf16.Encode([]rune(s)) {
		if unit < 0x80 && unit != '"' && unit != '\\' {
			out.WriteByte(byte(unit))
			continue
		}
		fmt.Fprintf(&out, format, unit)
	}
	return out.String()
}

// Texts without secrets stay as they are, with any escapes.
func TestOtherTextStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := knowing(t, "pässwörd😀-1")
	for _, text := range []string{
		"", "%", "100 %", `a\`, `\u12`, `\ud83d`, "&amp;", "&;", "&nothing;", "=3D", "a=b&c=d%20e",
		`{"a": "\u00e9\n"}`, "pässwörd😀", "\xff\xfe%ff",
	} {
		if have := s.Hide(text); have != text {
			t.Errorf("want %q as it is, have %q", text, have)
		}
	}
	for _, text := range []string{
		`p\u00e4ssw\u00F6rd\ud83d\ude00-1`, "p&auml;ssw&#246;rd&#x1F600;-1", "p%C3%A4ssw%c3%b6rd%F0%9F%98%80-1",
		`p\u{e4}ssw\xc3\xb6rd\U0001f600-1`, "p%25C3%25A4ssw%25c3%25b6rd%25F0%259F%2598%2580-1",
	} {
		if have := s.Hide("<" + text + "> and " + text); have != "<***> and ***" {
			t.Errorf("want %q hidden, have %q", text, have)
		}
	}
}

func TestSecretsLeaveNothingInResults(t *testing.T) {
	t.Parallel()
	s := knowing(t, "c4nary-token", "7654321", "ab")
	cause := errors.New("GET http://x/?t=c4nary-token: ab")
	status := &model.StatusError{
		Status: 403, Method: "GET", URL: "http://x", Excerpt: "c4nary-token is wrong",
		Body: map[string]any{"token": "c4nary-token"},
	}
	r, err := s.Result(t.Context(), model.Result{
		Response: map[string]any{
			"c4nary-token": []any{"x c4nary-token y", 7654321, 7.0, nil, true, map[string]any{"a": "ab"}}, "kept": "about",
		},
		Emit: []model.Event{{Payload: []any{"c4nary-token"}}},
	}, model.Permanent(errors.Join(cause, status)))
	want := model.Result{
		Response: map[string]any{"***": []any{"x *** y", "***", 7.0, nil, true, map[string]any{"a": "ab"}}, "kept": "about"},
		Emit:     []model.Event{{Payload: []any{"***"}}},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("-want +have\n%s", d)
	}
	if have := err.Error(); have != "GET http://x/?t=***: ***\n403 from GET http://x: *** is wrong" {
		t.Errorf("have %q", have)
	}
	if !model.IsPermanent(err) || !errors.Is(err, cause) || model.ClassOf(err) != "403" || fmt.Sprint(status.Body) != "map[token:***]" {
		t.Errorf("want what callers test kept, have %v, %v", err, status)
	}
	nothing := knowing(t)
	same := errors.New("c4nary-token")
	if _, err := nothing.Result(t.Context(), model.Result{}, same); !errors.Is(err, same) {
		t.Errorf("want errors of calls without secrets as they are, have %v", err)
	}
}

// A reply full of secrets costs as much as any other of its length: each form is searched for in each part of it once.
func TestSecretsAreFoundInLinearTime(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-t0ken"
	forms := longestFirst(append(plainForms(secret), plainForms("another-one")...))
	scanned := func(times int) int {
		f := newFinder(strings.Repeat(secret+",x ", times), forms, leastHidden)
		found := 0
		for from, to := f.next(); from < to; from, to = f.next() {
			found++
		}
		if found != times {
			t.Errorf("want %d secrets, have %d", times, found)
		}
		return f.scanned
	}
	few, many := scanned(1000), scanned(4000)
	if many > 5*few {
		t.Errorf("four times the reply: want about four times the %d bytes to search, have %d", few, many)
	}
}

// A steppingContext ends after it has been asked a number of times.
type steppingContext struct {
	context.Context
	left int
}

// Err implements [context.Context].
func (c *steppingContext) Err() error {
	c.left--
	if c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// What is not yet searched when the timeout of a call ends must not come out.
func TestRemovingSecretsEndsWithItsCall(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-t0ken"
	reply := func() any {
		return []any{"kept", secret, map[string]any{"a": escapedJSON(secret), secret: 1}}
	}
	whole := &steppingContext{t.Context(), 1 << 20}
	if r, err := knowing(t, secret).Result(whole, model.Result{Response: reply()}, nil); err != nil ||
		fmt.Sprint(r.Response) != "[kept *** map[***:1 a:***]]" {
		t.Fatalf("have %v, %v", r.Response, err)
	}
	asked := 1<<20 - whole.left
	for left := range asked {
		r, err := knowing(t, secret).Result(&steppingContext{t.Context(), left}, model.Result{Response: reply()}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || r.Response != nil {
			t.Fatalf("after %d of %d steps: want no result, have %v, %v", left, asked, r.Response, err)
		}
	}
	failed := errors.New("503: " + secret)
	if _, err := knowing(t, secret).Result(&steppingContext{t.Context(), 0}, model.Result{}, failed); err == nil || err.Error() != "503: ***" {
		t.Errorf("want the error of the call, have %v", err)
	}
}

// escapedJSON escapes all of a text.
func escapedJSON(text string) string {
	var out strings.Builder
	for _, c := range text {
		fmt.Fprintf(&out, `\u%04x`, c)
	}
	return out.String()
}
