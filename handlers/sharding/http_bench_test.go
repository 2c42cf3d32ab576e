package sharding

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"procaas/engine"
	"procaas/engine/api"
)

// unguarded is an engine that wants no tokens.
type unguarded struct{ api.Engine }

func (unguarded) Guarded(context.Context) (bool, error) { return false, nil }

// only serves one map that is in memory.
type only struct {
	engine.ShardMaps
	m *Map
}

func (o only) Resolve(ctx context.Context, _ string, q engine.ShardQuestion) (engine.ShardAnswer, error) {
	return o.m.Resolve(ctx, q)
}

// BenchmarkHTTP compares resolving by the API with a bare handler of net/http that looks
// into a map of Go and answers with as much JSON: in turns, so that both meet the same
// machine.
func BenchmarkHTTP(b *testing.B) {
	m, keys := benchMap(), benchKeys()
	plain := map[string]engine.ShardAnswer{}
	for _, key := range keys {
		a, err := m.Resolve(b.Context(), engine.ShardQuestion{Key: key})
		if err != nil {
			b.Fatal(err)
		}
		plain[key] = a
	}
	bare := http.NewServeMux()
	bare.HandleFunc("GET /v1/shard-maps/{map}/resolve", func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if err := json.NewEncoder(&body).Encode(plain[r.URL.Query().Get("key")]); err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body.Bytes())
	})
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare", bare},
		{"api", api.New(api.Options{Engine: unguarded{}, Shards: only{m: m}, Local: true})},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(len(keys)); pb.Next(); i++ {
					reply, err := client.Get(server.URL + "/v1/shard-maps/many/resolve?mode=master&key=" + keys[i&(len(keys)-1)])
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, reply.Body)
					reply.Body.Close()
					if reply.StatusCode != http.StatusOK {
						b.Error(reply.Status)
						return
					}
				}
			})
		})
	}
}
