package shardmap

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/credentials"
	"procaas/engine/store"
	shardingapi "procaas/handlers/sharding/api"
	"procaas/handlers/sharding/transfers"
)

// fresh looks at all hosts of a map again, as its poller does each second, and does so ahead
// of time: the machine may stall for longer than what is known stays fresh.
func fresh(m *Map) {
	for _, s := range m.shards {
		for i := range s.hosts {
			for range 2 {
				s.take(i, Report{Master: i == 0, Timeline: 1, LSN: 1}, time.Now().Add(time.Hour))
			}
		}
	}
}

// only serves one map that is in memory.
type only struct {
	transfers.ShardMaps
	m *Map
}

func (o only) Resolve(ctx context.Context, _ string, q transfers.ShardQuestion) (transfers.ShardAnswer, error) {
	return o.m.Resolve(ctx, q)
}

func (o only) AppendAnswer(to []byte, id, key, mode, dc string) ([]byte, bool) {
	if id != o.m.ID {
		return to, false
	}
	return o.m.AppendAnswer(to, key, mode, dc)
}

// unguarded is an engine that wants no tokens.
type unguarded struct {
	access.Access
	api.Health
}

func (unguarded) Guarded(context.Context) (bool, error) { return false, nil }

// oneToken is an engine that has made a token.
type oneToken struct {
	access.Access
	api.Health
}

func (oneToken) Guarded(context.Context) (bool, error) { return true, nil }

func (oneToken) GrantOf(_ context.Context, token [sha256.Size]byte) (credentials.Grant, error) {
	switch token {
	case sha256.Sum256([]byte("asker")):
		return credentials.Grant{Name: "asker", Role: credentials.RoleSubmitter}, nil
	case sha256.Sum256([]byte("viewer")):
		return credentials.Grant{Name: "viewer", Role: credentials.RoleViewer}, nil
	}
	return credentials.Grant{}, credentials.ErrUnknownToken
}

func (oneToken) AuditRefusal(context.Context, store.Actor, string, string) error { return nil }

func TestAnswersFromMemoryAreThoseOfResolve(t *testing.T) {
	t.Parallel()
	m := manyShards(20)
	m.layout.parts = 2
	m.index.layout = m.layout
	m.index.put(Placement{Map: m.ID, Key: "user-1/inbox", Shard: "s7", Epoch: 9, State: Ready, Owned: true}, false)
	m.index.put(Placement{Map: m.ID, Key: "half", Shard: "s7", Epoch: 1, State: Creating}, false)
	m.index.put(Placement{Map: m.ID, Key: "bad", Shard: "s7", Epoch: 1, State: Refused}, false)
	quick := 0
	for _, key := range []string{
		"user-1/inbox", "user-1", "user-1/sent", "x", "half", "bad", "", "/", "a/", "/a", "a//b", "a/b/c", "#1",
		"a%2Fb", `"`, "é", "a b",
	} {
		for _, mode := range []string{transfers.ShardMaster, transfers.ShardReplica, transfers.ShardAny} {
			for _, dc := range []string{"a", "b", "c"} {
				fresh(m)
				got, ok := m.AppendAnswer([]byte("kept "), key, mode, dc)
				if !ok {
					if string(got) != "kept " {
						t.Errorf("%s %s %s: left %q behind", key, mode, dc, got)
					}
					continue
				}
				quick++
				a, err := m.Resolve(t.Context(), transfers.ShardQuestion{Key: key, Mode: mode, DC: dc})
				if err != nil {
					t.Fatalf("%s %s %s: %s, and Resolve fails: %v", key, mode, dc, got, err)
				}
				want, _ := json.Marshal(a)
				// From a, which has the master, a replica is drawn from the other two.
				if alike := dc != "a" || mode != transfers.ShardReplica; alike && string(got) != "kept "+string(want)+"\n" {
					t.Errorf("%s %s %s:\nhave %swant kept %s", key, mode, dc, got, want)
				}
			}
		}
	}
	if quick != 5*9 { // of user-1/inbox, user-1, user-1/sent, x and "a b"
		t.Errorf("%d answers came from memory", quick)
	}
	for _, s := range m.shards {
		old := *s.view.Load()
		s.view.Store(&view{hosts: old.hosts, lags: old.lags, tails: old.tails, at: time.Now().Add(-time.Hour)})
	}
	if got, ok := m.AppendAnswer(nil, "x", transfers.ShardMaster, ""); ok {
		t.Errorf("%s is told without looking at its age", got)
	}
}

func TestPlainKeysAreKeysOfTheMap(t *testing.T) {
	t.Parallel()
	l := layout{strategy: "directory", parts: 1, ints: true}
	for _, key := range []string{
		"0", "42", "-1", "007", "", "1e3", "9223372036854775807", "92233720368547758070", "4 2",
		"123456789012345678",
	} {
		if l.plain(key) && l.check(key) != nil {
			t.Errorf("%q is plain, and no key: %v", key, l.check(key))
		}
	}
	if !l.plain("42") || !l.plain("0") || l.plain("007") {
		t.Error("plain numbers are not told from others")
	}
}

// ask sends a question, with a token when it is not empty.
func ask(t *testing.T, server *httptest.Server, query url.Values, token string) (status int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/shard-maps/many/resolve?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	reply.Header.Del("Date")
	return reply.StatusCode, reply.Header, string(text)
}

func TestQuickRepliesAreThoseOfTheRouter(t *testing.T) {
	t.Parallel()
	m := manyShards(20)
	server := httptest.NewServer(api.New(api.Options{
		Engine: api.Ports{Access: unguarded{}, Health: unguarded{}}, Groups: []api.Group{shardingapi.Calls(only{m: m}, nil)},
		Local: true,
	}))
	t.Cleanup(server.Close)
	for _, query := range []url.Values{
		{"key": {"x"}},
		{"key": {"x"}, "mode": {"any"}, "dc": {"b"}},
		{"key": {"x"}, "mode": {"replica"}, "dc": {"c"}},
		{"key": {"x"}, "mode": {"odd"}},
		{"key": {""}},
		{},
		{"key": {"a/b"}},
		{"key": {"x", "y"}},
		{"key": {"x"}, "kez": {"y"}},
	} {
		fresh(m)
		// this one goes through the router
		wantStatus, want, wantBody := ask(t, server, merged(query, url.Values{"register": {"true"}}), "")
		status, header, body := ask(t, server, query, "")
		if status != wantStatus || body != wantBody && status == http.StatusOK || fmt.Sprint(header) != fmt.Sprint(want) &&
			status == http.StatusOK {
			t.Errorf("%v:\nhave %d %v %swant %d %v %s", query, status, header, body, wantStatus, want, wantBody)
		}
	}
}

func merged(a, b url.Values) url.Values {
	out := url.Values{}
	for _, v := range []url.Values{a, b} {
		for name, values := range v {
			out[name] = append(out[name], values...)
		}
	}
	return out
}

func TestQuickRepliesWantTokens(t *testing.T) {
	t.Parallel()
	m := manyShards(20)
	server := httptest.NewServer(api.New(api.Options{Engine: api.Ports{Access: oneToken{}, Health: oneToken{}}, Groups: []api.Group{shardingapi.Calls(only{m: m}, nil)}}))
	t.Cleanup(server.Close)
	query := url.Values{"key": {"x"}}
	for range 2 { // the first time through the router
		for token, want := range map[string]int{
			"": http.StatusUnauthorized, "asker": http.StatusOK, "viewer": http.StatusForbidden,
			"wrong": http.StatusUnauthorized,
		} {
			fresh(m)
			if status, _, body := ask(t, server, query, token); status != want {
				t.Errorf("token %q: %d %s", token, status, body)
			}
		}
	}
}
