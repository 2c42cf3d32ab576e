package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/api/rest"
	"procaas/engine/credentials"
	"procaas/engine/store"
)

func TestRefusalsDoNotFillTheAudit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f notes
		lasts := map[string]int{}
		told := func(token string, calls int) (n int) {
			for i := range calls {
				ok, last := f.first(token, fmt.Sprint("GET /", i))
				if last {
					lasts[token]++
				}
				if ok {
					n++
				}
			}
			return n
		}
		if have := told("ann", 1) + told("ann", 1); have != 1 {
			t.Errorf("want the same refusal told once, have %d", have)
		}
		if have := told("bob", 1000); have != mostRefusalsEach+1 || lasts["bob"] != 1 {
			t.Errorf("want %d of one token, and one that says where the rest is, have %d", mostRefusalsEach, have)
		}
		all := 0
		for i := range 1000 {
			all += told(fmt.Sprint("token-", i), 5)
		}
		if all != mostRefusals-2-mostRefusalsEach {
			t.Errorf("want %d of all tokens, have %d", mostRefusals-2-mostRefusalsEach, all)
		}
		time.Sleep(noteWindow)
		if have := told("ann", 1); have != 1 {
			t.Errorf("want it told again after a while, have %d", have)
		}
	})
}

// A clerk is a doorkeeper that remembers what it audited.
type clerk struct {
	doorkeeper
	audited []string
}

func (c *clerk) AuditRefusal(_ context.Context, by store.Actor, call, _ string) error {
	c.audited = append(c.audited, by.Name+" "+call)
	return nil
}

func (c *clerk) GrantOf(ctx context.Context, hash [sha256.Size]byte) (credentials.Grant, error) {
	if sha256.Sum256([]byte("expired")) == hash {
		return credentials.Grant{Name: "expired"}, credentials.ErrTokenExpired
	}
	return c.doorkeeper.GrantOf(ctx, hash)
}

// TestEveryRefusalIsWrittenDown makes every kind of call with every kind of caller that it refuses: the
// log has each refusal, and the audit each one whose caller has a token.
func TestEveryRefusalIsWrittenDown(t *testing.T) {
	t.Parallel()
	for id, n := range needs {
		for _, caller := range []string{"", "wrong", "expired", "viewer", "submitter", "worker", "operator", "operator:p", "evil.example", "basic"} {
			access := &clerk{}
			var lines bytes.Buffer
			s := New(Options{Access: access, Log: slog.New(slog.NewJSONHandler(&lines, nil)), Local: caller == "evil.example"})
			if caller == "evil.example" {
				s.access = open{}
			}
			r := httptest.NewRequest(http.MethodPost, "/some/path", nil)
			switch caller {
			case "", "evil.example":
				r.Host = caller
			case "basic":
				r.Header.Set("Authorization", "Basic xyz")
			default:
				r.Header.Set("Authorization", "Bearer "+caller)
			}
			w := httptest.NewRecorder()
			s.Serve(func(_ http.ResponseWriter, r *http.Request) error {
				_, err := s.Admit(r, n)
				return err
			}).ServeHTTP(w, r)
			if w.Code == http.StatusOK {
				continue
			}
			var line struct{ Msg, Token, Method, Code string }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Msg != "call refused" || line.Method != "POST" || line.Code == "" {
				t.Errorf("%s: %q: want one line about the refusal, have %s", id, caller, lines.String())
			}
			want := []string(nil)
			if line.Token != "" || w.Code == http.StatusForbidden || caller == "expired" {
				want = []string{caller + " POST /some/path"}
			}
			if !slices.Equal(access.audited, want) {
				t.Errorf("%s: %q: want %q audited, have %q", id, caller, want, access.audited)
			}
		}
	}
}

// TestUsesOfTokensAreLogged checks that the log has who read what, once in an hour.
func TestUsesOfTokensAreLogged(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	s := New(Options{Access: doorkeeper{}, Log: slog.New(slog.NewTextHandler(&lines, nil))})
	for _, path := range []string{"/v1/runs/a", "/v1/runs/a", "/v1/runs/b"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer viewer")
		r, err := s.Admit(r, rest.Views)
		if err != nil {
			t.Fatal(err)
		}
		s.NoteUse(r, "get-run")
	}
	if n := strings.Count(lines.String(), `msg="token used" token=viewer role=viewer operation=get-run`); n != 2 {
		t.Errorf("want a line for each run, have %s", lines.String())
	}
}
