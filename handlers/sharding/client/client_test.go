package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/enginetest/patience"
	shardingapi "procaas/handlers/sharding/api"
	"procaas/handlers/sharding/client"
	"procaas/handlers/sharding/transfers"
)

// A world is a server with one key, which may move.
type world struct {
	transfers.ShardMaps
	epoch atomic.Int64
	asked atomic.Int64
	moved chan struct{}
}

func (w *world) Resolve(_ context.Context, _ string, q transfers.ShardQuestion) (transfers.ShardAnswer, error) {
	w.asked.Add(1)
	if q.Key != "42" {
		return transfers.ShardAnswer{}, transfers.ErrUnplaced
	}
	e := w.epoch.Load()
	return transfers.ShardAnswer{Map: "mail", Key: q.Key, Placement: "42", Shard: "s" + strconv.FormatInt(e, 10), Epoch: e}, nil
}

func (w *world) Watch(ctx context.Context, _, after string) (transfers.ShardChanges, error) {
	if after == "" {
		return transfers.ShardChanges{Next: "x-0", Reset: true}, nil
	}
	select {
	case <-w.moved:
		return transfers.ShardChanges{Next: "x-1", Items: []transfers.ShardPlacement{{Placement: "42"}}}, nil
	case <-ctx.Done():
		return transfers.ShardChanges{Next: after}, nil
	}
}

type open struct {
	access.Access
	api.Health
}

func (open) Guarded(context.Context) (bool, error) { return false, nil }

func newWorld(t *testing.T) (*world, *client.Client) {
	w := &world{moved: make(chan struct{})}
	w.epoch.Store(1)
	server := httptest.NewServer(api.New(api.Options{Engine: api.Ports{Access: open{}, Health: open{}}, Groups: []api.Group{shardingapi.Calls(w, nil)}, Local: true}))
	t.Cleanup(server.Close)
	c := client.New(server.URL, "", "mail")
	c.TTL = time.Hour
	return w, c
}

type sqlError string

func (e sqlError) Error() string    { return string(e) }
func (e sqlError) SQLState() string { return string(e) }

func TestDoAsksAgainWhenTheShardSaysSo(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	var seen []int64
	err := c.Do(t.Context(), client.Question{Key: "42"}, func(_ context.Context, a client.Answer) error {
		seen = append(seen, a.Epoch)
		if len(seen) == 1 {
			w.epoch.Store(2)
			return sqlError("PC001")
		}
		if len(seen) == 2 {
			return sqlError("40001")
		}
		return nil
	})
	if err != nil || len(seen) != 3 || seen[0] != 1 || seen[1] != 2 {
		t.Errorf("answers of epochs %v, %v; want 1, 2, 2", seen, err)
	}
	other := errors.New("disk full")
	if err := c.Do(t.Context(), client.Question{Key: "42"}, func(context.Context, client.Answer) error { return other }); !errors.Is(err,
		other) {
		t.Errorf("another error: %v", err)
	}
	var p *client.Problem
	if _, err := c.Resolve(t.Context(), client.Question{Key: "43"}); !errors.As(err, &p) || p.Code != "key_not_placed" ||
		p.Status != http.StatusNotFound {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestAnswersAreKeptUntilTheyChange(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t)
	resolve := func() int64 {
		t.Helper()
		a, err := c.Resolve(t.Context(), client.Question{Key: "42"})
		if err != nil {
			t.Fatal(err)
		}
		return a.Epoch
	}
	resolve()
	if resolve(); w.asked.Load() != 1 {
		t.Errorf("asked %d times for a kept answer, want once", w.asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Watch(ctx); close(done) }()
	w.epoch.Store(2)
	w.moved <- struct{}{}
	patience.Until(t, "the change is heard of", func() bool { return resolve() == 2 })
	cancel()
	<-done
}

func TestKeysAreEscaped(t *testing.T) {
	t.Parallel()
	if have := client.Key("a/b", "50%", "#[", "c"); have != "a%2Fb/50%25/%23%5B/c" {
		t.Errorf("have %s", have)
	}
}

// Watch goes on where it was: behind a stream that has ended, behind one that was cut, and with a
// server that has no streams.
func TestWatchGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		asked <- after
		stream := func(data string) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("retry: 1000\n\n: alive\n\nid: x\nevent: changes\n" + data + "\n"))
			_ = http.NewResponseController(w).Flush() // the client may have left
		}
		switch after {
		case "":
			stream("data: {\"next\": \"x-1\", \"reset\": true}\n")
		case "x-1":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"next": "x-2", "items": [{"placement": "42"}]}`))
		case "x-2":
			stream("data: {\"next\":\ndata: \"x-3\"}\n")
			panic(http.ErrAbortHandler)
		default:
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	c := client.New(server.URL, "", "mail")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Watch(ctx); close(done) }()
	for _, want := range []string{"", "x-1", "x-2", "x-3"} {
		if have := <-asked; have != want {
			t.Fatalf("it asks behind %q, want %q", have, want)
		}
	}
	cancel()
	<-done
}
