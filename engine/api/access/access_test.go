package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/credentials"
)

// doorkeeper is an engine that knows a token for each role, and nothing else.
type doorkeeper struct{ Access }

func (doorkeeper) Guarded(context.Context) (bool, error) { return true, nil }

func (doorkeeper) GrantOf(_ context.Context, hash [sha256.Size]byte) (credentials.Grant, error) {
	token := ""
	for _, role := range append(credentials.Roles(), credentials.RoleOperator+":p") {
		if sha256.Sum256([]byte(role)) == hash {
			token = string(role)
		}
	}
	role, path, _ := strings.Cut(token, ":")
	if !slices.Contains(credentials.Roles(), credentials.Role(role)) {
		return credentials.Grant{}, credentials.ErrUnknownToken
	}
	g := credentials.Grant{Name: token, Role: credentials.Role(role)}
	if path != "" {
		g.Paths = []string{path}
	}
	return g, nil
}

// needs are the needs that operations have.
var needs = map[string]rest.Need{
	"anybody": rest.Anybody, "submits": rest.Submits, "reads": rest.Reads, "scrapes": rest.Scrapes, "views": rest.Views,
	"surveys": rest.Surveys, "asks": rest.Asks, "works": rest.Works, "steers": rest.Steers, "tunes": rest.Tunes, "rules": rest.Rules,
}

// TestCallersGetInWhereTheyMay calls as everybody.
func TestCallersGetInWhereTheyMay(t *testing.T) {
	t.Parallel()
	callers := []string{"", "wrong", "viewer", "submitter", "worker", "operator", "operator:p", "admin"}
	for _, open := range [][]string{nil, rest.OpenGroups(), {""}} { // the last opens nothing
		s := New(Options{Access: doorkeeper{}, Open: open})
		var have []string
		for id, n := range needs {
			var in []string
			for _, caller := range callers {
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				if caller != "" {
					r.Header.Set("Authorization", "Bearer "+caller)
				}
				r.RemoteAddr = id + ":1" // so that failures do not add up
				if _, err := s.Admit(r, n); err == nil {
					in = append(in, cmp.Or(caller, "anybody"))
				} else if want := map[bool]int{true: 401, false: 403}[caller == "" || caller == "wrong"]; problem.Of(err).Status != want {
					t.Errorf("%s: %q: want %d, have %v", id, caller, want, err)
				}
			}
			have = append(have, fmt.Sprintf("%s: %s", id, strings.Join(in, " ")))
		}
		const everybody = "anybody wrong viewer submitter worker operator operator:p admin"
		for _, line := range have {
			id, in, _ := strings.Cut(line, ": ")
			want := map[string]string{
				"viewer": "viewer operator operator:p admin", "submitter": "submitter operator operator:p admin",
				"worker": "worker operator operator:p admin", "operator": "operator operator:p admin", "admin": "admin", "": everybody,
			}[string(needs[id].Role)]
			if needs[id].Everywhere {
				want = strings.ReplaceAll(want, " operator:p", "")
			}
			if group := needs[id].Open; group != "" && slices.Contains(open, group) {
				want = "anybody viewer submitter worker operator operator:p admin"
			}
			if in != want {
				t.Errorf("open %v: %s: want in %s, have %s", open, id, want, in)
			}
		}
	}
}

// tries sends wrong tokens, and then another one, and returns its status.
func tries(s *Checker, wrong int, from, token string) int {
	send := func(token string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.RemoteAddr = from + ":4711"
		if _, err := s.Admit(r, rest.Views); err != nil {
			return problem.Of(err).Status
		}
		return http.StatusOK
	}
	for range wrong {
		send("guess")
	}
	return send(token)
}

func TestWrongTokensAreLimitedByAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Access: doorkeeper{}, Token: "weak"})
		for _, c := range []struct {
			what        string
			wrong       int
			from, token string
			want        int
		}{
			{"a few", 5, "10.0.0.1", "weak", 200},
			{"one more address", 19, "10.0.0.2", "weak", 200},
			{"too many", 20, "10.0.0.1", "guess", 429},
			{"the configured token is good from a proxy whose other callers are wrong", 20, "10.0.0.1", "weak", 200},
			{"a token that was made cannot be guessed", 0, "10.0.0.1", "viewer", 200},
			{"another address", 0, "10.0.0.3", "weak", 200},
		} {
			if have := tries(s, c.wrong, c.from, c.token); have != c.want {
				t.Errorf("%s: want %d, have %d", c.what, c.want, have)
			}
		}
		time.Sleep(failureWindow)
		if have := tries(s, 0, "10.0.0.1", "guess"); have != 401 {
			t.Errorf("after a while: want 401, have %d", have)
		}
		for i := range 3 * mostAddresses {
			tries(s, 0, fmt.Sprintf("10.1.%d.%d", i/256, i%256), "guess")
		}
		if n := len(s.failures.count); n > mostAddresses+1 {
			t.Errorf("want at most %d addresses remembered, have %d", mostAddresses, n)
		}
	})
}

func TestForeignHostsAreRefusedOnThisMachine(t *testing.T) {
	t.Parallel()
	s := New(Options{Access: open{}, Local: true, Hosts: []string{"Orders.example"}})
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "127.0.0.1": 200, "localhost": 200, "LOCALHOST.:80": 200, "app.localhost:1": 200, "[::1]:8080": 200, "[::1]": 200,
		"127.9.9.9": 200, "[::ffff:127.0.0.1]": 200, "orders.example:8080": 200, "ORDERS.example.": 200,
		"evil.example": 421, "evil.example:8080": 421, "127.0.0.1.evil.example": 421, "10.0.0.1": 421, "localhost.evil.example": 421,
		"notlocalhost": 421,
		"":             421, "0.0.0.0:8080": 421, "[::]": 421,
	} {
		for id, n := range needs {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = host
			status := http.StatusOK
			if _, err := s.Admit(r, n); err != nil {
				status = problem.Of(err).Status
			}
			if want := map[bool]int{true: 200, false: want}[n.Role == ""]; status != want {
				t.Errorf("%s for %q: want %d, have %d", id, host, want, status)
			}
		}
	}
	// What a proxy of this machine passes on may come from anybody and name any host.
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "Via", "CF-Connecting-IP"} {
		for host, want := range map[string]int{
			"127.0.0.1:8080": 421, "localhost": 421, "[::1]": 421, "evil.example": 421,
			"orders.example": 200,
		} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = host
			r.Header.Set(header, "203.0.113.7")
			status := http.StatusOK
			if _, err := s.Admit(r, rest.Rules); err != nil {
				status = problem.Of(err).Status
			}
			if status != want {
				t.Errorf("%s with %s: want %d, have %d", host, header, want, status)
			}
		}
	}
	guarded := New(Options{Access: doorkeeper{}, Local: true})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = "orders.example"
	r.Header.Set("Authorization", "Bearer viewer")
	if _, err := guarded.Admit(r, rest.Views); err != nil {
		t.Errorf("want the bearer of a token let in by any name, have %v", err)
	}
}

// open is an engine without tokens.
type open struct{ Access }

func (open) Guarded(context.Context) (bool, error) { return false, nil }

// untokened is a doorkeeper where nobody has made a token yet.
type untokened struct{ doorkeeper }

func (untokened) Guarded(context.Context) (bool, error) { return false, nil }

// An office identifies callers with tokens such as other:viewer.
type office struct{ away bool }

func (o *office) Identify(_ context.Context, token string) (credentials.Identity, bool, error) {
	role, ok := strings.CutPrefix(token, "other:")
	switch {
	case !ok:
		return credentials.Identity{}, false, nil
	case o.away:
		return credentials.Identity{}, true, problem.New(problem.NotReady, "away")
	case role == "forged":
		return credentials.Identity{}, true, fmt.Errorf("claim x: %w", credentials.ErrUnknownToken)
	}
	return credentials.Identity{Name: "ann@example.com", Claims: []byte(`"` + role + `"`)}, true, nil
}

func (o *office) Grant(who credentials.Identity) (credentials.Grant, error) {
	role := strings.Trim(string(who.Claims), `"`)
	if role == "nobody" {
		return credentials.Grant{}, fmt.Errorf("no rule fits")
	}
	return credentials.Grant{Role: credentials.Role(role), By: "rule 1"}, nil
}

func (*office) Entrances(string) []credentials.Entrance { return nil }

// Callers whom an add-on identifies get in where their role may, and tokens of the server work as before.
func TestOthersAreIdentified(t *testing.T) {
	t.Parallel()
	o := &office{}
	s := New(Options{Access: untokened{}, Others: o})
	for token, want := range map[string]string{
		"": "401 the call needs the header", "wrong": "401 the token is none of this server's", "viewer": "200 viewer", "other:viewer": "200 ann@example.com",
		"other:worker": "403 ann@example.com is a worker by rule 1; the call needs a viewer", "other:nobody": "403 no rule fits",
		"other:forged": "401 claim x: ",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		in, err := s.Admit(r, rest.Views)
		have := ""
		if err == nil {
			have = "200 " + rest.Granted(in).Name
		} else {
			p := problem.Of(err)
			have = fmt.Sprint(p.Status, " ", p.Detail)
		}
		if !strings.HasPrefix(have, want) {
			t.Errorf("%q: want %s, have %s", token, want, have)
		}
	}
	o.away = true
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer other:viewer")
	if _, err := s.Admit(r, rest.Views); problem.Of(err).Status != http.StatusServiceUnavailable {
		t.Errorf("want that the node is not ready, have %v", err)
	}
	r.Header.Set("Authorization", "Bearer viewer")
	if _, err := s.Admit(r, rest.Views); err != nil {
		t.Errorf("want tokens of the server to go on, have %v", err)
	}
}
