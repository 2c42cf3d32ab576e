package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	shardingremote "procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/transfers"
)

// Whoever has been answered that a definition is in use finds its shard maps in use: no key is placed by the
// check of the former ones. Other nodes take them over as well. Maps that cannot be are refused before
// anything changes.
func TestReloadAnswersWhenItsShardMapsAreKept(t *testing.T) {
	t.Parallel()
	var checks [2]*httptest.Server
	var asked [2]atomic.Int64
	for i := range checks {
		checks[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked[i].Add(1)
			w.WriteHeader(http.StatusNotFound)
		}))
		defer checks[i].Close()
	}
	dir, store := t.TempDir(), enginetest.MigratedPostgres(t)
	write := func(check int, strategy string) {
		t.Helper()
		text := fmt.Sprintf("shard-maps:\n  - {id: mail, key: user, %s registration: {check: %q}, shards: [{id: s1, hosts: [{address: \"127.0.0.1:1\"}]}]}\n"+
			"pipelines:\n  - {id: p, stages: [{id: s, handlers: [{id: h, set: {}}]}]}\n", strategy, checks[check].URL)
		if strategy != "" {
			text = strings.Replace(text, fmt.Sprintf(" registration: {check: %q},", checks[check].URL), "", 1)
		}
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(0, "")
	var clients [2]*client.Client
	for i := range clients {
		var quiet lockedBuffer
		url, _ := runNode(t, serve.Flags{
			Store: store, Listen: "127.0.0.1:0", Name: fmt.Sprint("node-", i), Migrate: true, MaxInFlight: 4, Lease: time.Minute,
			Drain:   time.Second,
			MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{dir},
		}, cli.Streams{In: strings.NewReader(""), Out: &quiet, Err: &quiet})
		clients[i] = client.New(url, "")
		eventually(t, "the node to work", func() bool { _, err := clients[i].Nodes(t.Context()); return err == nil })
	}
	ask := func(node int, key string) {
		t.Helper()
		if _, err := shardingremote.ResolveShard(t.Context(), clients[node], "mail", transfers.ShardQuestion{Key: key}); err == nil ||
			!strings.Contains(err.Error(), "no placement") {
			t.Fatalf("key %s: have %v, want that it has no placement", key, err)
		}
	}
	for round := range 6 {
		now := (round + 1) % 2
		write(now, "")
		if _, err := clients[0].Reload(t.Context(), wire.Reload{Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		before := asked[now].Load()
		ask(0, fmt.Sprint("first-", round))
		if asked[now].Load() == before {
			t.Fatalf("round %d: a key was checked by the maps from before the reload", round)
		}
		eventually(t, "the other node to have the new maps", func() bool {
			before := asked[now].Load()
			ask(1, fmt.Sprint("second-", round))
			return asked[now].Load() > before
		})
	}
	write(0, "strategy: slots,")
	if _, err := clients[0].Reload(t.Context(), wire.Reload{Reason: "test"}); err == nil ||
		!strings.Contains(err.Error(), "declare a new map") {
		t.Errorf("another strategy: have %v, want that it is refused", err)
	}
	ask(0, "last")
}
