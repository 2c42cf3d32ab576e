package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/handlers/sharding/transfers"
)

// watched is a shard map whose placements change when the test says so.
type watched struct {
	transfers.ShardMaps

	mu      sync.Mutex // guards the following
	changes []transfers.ShardPlacement
	more    chan struct{}
}

func newWatched() *watched { return &watched{more: make(chan struct{})} }

func (w *watched) move(placement, shard string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, transfers.ShardPlacement{Placement: placement, Shard: shard, Epoch: int64(len(w.changes) + 2)})
	close(w.more)
	w.more = make(chan struct{})
}

func (w *watched) Watch(ctx context.Context, shardMap, after string) (transfers.ShardChanges, error) {
	if shardMap != "mail" {
		return transfers.ShardChanges{}, fmt.Errorf("%w: %q", transfers.ErrShardMap, shardMap)
	}
	for {
		w.mu.Lock()
		have, more := w.changes, w.more
		w.mu.Unlock()
		c := transfers.ShardChanges{Next: fmt.Sprintf("x-%d", len(have)), Items: []transfers.ShardPlacement{}}
		position := -1
		if _, err := fmt.Sscanf(after, "x-%d", &position); err != nil || position > len(have) {
			c.Reset = true
			return c, nil
		}
		if c.Items = append(c.Items, have[position:]...); len(c.Items) > 0 {
			return c, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return c, nil
		}
	}
}

// A told event is one as a caller reads it.
type told struct {
	id, name string
	changes  transfers.ShardChanges
}

// nextEvent reads a stream up to the end of an event; ok is false at its end.
func nextEvent(t *testing.T, lines *bufio.Scanner) (e told, ok bool) {
	t.Helper()
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.changes); err != nil {
				t.Fatalf("%s: %v", value, err)
			}
		case "":
			if e.id != "" {
				return e, true
			}
		}
	}
	return e, false
}

// A stream tells of each change once, continues after the event that a caller names, and ends
// with the node.
func TestShardMapIsStreamed(t *testing.T) {
	t.Parallel()
	maps, closing := newWatched(), make(chan struct{})
	server := httptest.NewServer(api.New(withProducts(newFake(&tree.Bundle{}), api.Options{Local: true, Closing: closing}, products{shards: maps})))
	defer server.Close()
	open := func(path, last string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reply.Body.Close() })
		return reply
	}
	const path = "/v1/shard-maps/mail/watch"
	reply := open(path, "")
	if have := reply.Header.Get("Content-Type"); have != "text/event-stream" {
		t.Errorf("the type is %q", have)
	}
	lines := bufio.NewScanner(reply.Body)
	if e, _ := nextEvent(t, lines); e.id != "x-0" || e.name != "changes" || !e.changes.Reset {
		t.Errorf("the first event: %+v", e)
	}
	for n := 1; n < 3; n++ {
		maps.move("42", "s2")
		e, _ := nextEvent(t, lines)
		if e.id != fmt.Sprintf("x-%d", n) || e.changes.Next != e.id || e.changes.Reset || len(e.changes.Items) != 1 ||
			e.changes.Items[0].Epoch != int64(n+1) {
			t.Errorf("event %d: %+v", n, e)
		}
	}
	for last, want := range map[string]string{"x-1": "x-2 false 1", "x-2": "x-2 false 0", "y-1": "x-2 true 0"} {
		e, _ := nextEvent(t, bufio.NewScanner(open(path, last).Body))
		if have := fmt.Sprint(e.id, " ", e.changes.Reset, " ", len(e.changes.Items)); have != want {
			t.Errorf("behind %s: have %s, want %s", last, have, want)
		}
	}
	for what, at := range map[string][2]string{
		"unknown_shard_map": {"/v1/shard-maps/male/watch", ""},
		"invalid_parameter": {path, strings.Repeat("x", 600)},
	} {
		reply := open(at[0], at[1])
		var p problem.Problem
		if err := json.NewDecoder(reply.Body).Decode(&p); err != nil || p.Code != what {
			t.Errorf("want the code %s, have %+v, %v", what, p, err)
		}
	}
	close(closing)
	if e, ok := nextEvent(t, lines); ok {
		t.Errorf("behind the end of the node: %+v", e)
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream has not ended in good order: %v", err)
	}
}

// A stream shows that it lives four times a minute, and lasts for an hour.
func TestStreamsBeatAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		maps := newWatched()
		h := api.New(withProducts(newFake(&tree.Bundle{}), api.Options{Local: true}, products{shards: maps}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/v1/shard-maps/mail/watch?after=x-0", nil)
		r.Header.Set("Accept", "text/event-stream")
		changed := time.AfterFunc(50*time.Second, func() { maps.move("42", "s2") })
		defer changed.Stop()
		began, w := time.Now(), httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if lasted := time.Since(began); lasted != time.Hour {
			t.Errorf("the stream lasted for %v, want an hour", lasted)
		}
		body := w.Body.String()
		before, after, _ := strings.Cut(body, "id: x-1\n")
		if n := strings.Count(before, ": nothing new\n"); n != 3 {
			t.Errorf("%d signs of life in the 50 seconds before the change, want 3", n)
		}
		if n := strings.Count(after, ": nothing new\n"); n < 235 {
			t.Errorf("%d signs of life in the rest of the hour, want one every 15 seconds", n)
		}
	})
}
