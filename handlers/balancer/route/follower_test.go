package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/route"
)

func TestFollowerNeverGoesBack(t *testing.T) {
	t.Parallel()
	w := newFake()
	answers := []any{w(1), w(3), w(2), errors.New("away"), w(3), w(4)}
	var asked []int64
	ctx, cancel := context.WithCancel(t.Context())
	f := route.NewFollower(route.SourceFunc(func(ctx context.Context, after int64) (clusters.Assignment, error) {
		asked = append(asked, after)
		if len(asked) > len(answers) {
			<-ctx.Done()
			return clusters.Assignment{}, ctx.Err()
		}
		switch x := answers[len(asked)-1].(type) {
		case clusters.Assignment:
			return x, nil
		case error:
			return clusters.Assignment{}, x
		}
		panic("neither an assignment nor an error")
	}), nil)
	if _, err := f.Route("user-1"); !errors.Is(err, route.ErrUnknown) {
		t.Errorf("before anything is known: have %v", err)
	}
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	for after := range int64(4) {
		a, err := f.Newer(ctx, after)
		if err != nil || a.Version <= after {
			t.Fatalf("after %d: have %+v, %v", after, a, err)
		}
	}
	cancel()
	<-done
	for i, after := range asked[1:] {
		if after < asked[i] {
			t.Errorf("asked for what is newer than %v: it went back", asked)
		}
	}
	if a := f.Current(); a.Version != 4 {
		t.Errorf("have version %d at the end, want 4", a.Version)
	}
}

// newFake makes assignments of one worker.
func newFake() func(version int64) clusters.Assignment {
	return func(version int64) clusters.Assignment {
		return clusters.Assignment{
			Cluster: clusterID, Version: version, Owners: []int{0, -1}, Since: []int64{1, 1},
			Workers: []clusters.AssignedWorker{{ID: "w0", URL: "http://w0"}},
		}
	}
}

func TestFollowerRoutesKeys(t *testing.T) {
	t.Parallel()
	b := newBoard()
	b.put(newFake()(7))
	f := route.NewFollower(b, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	if _, err := f.Newer(ctx, 0); err != nil {
		t.Fatal(err)
	}
	served, nobody := 0, 0
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		r, err := f.Route(key)
		switch {
		case r.Version != 7 || r.Partition != engine.PartitionOf(key, 2):
			t.Errorf("%s: have %+v", key, r)
		case r.Partition == 0 && err == nil && r.Worker.ID == "w0":
			served++
		case r.Partition == 1 && errors.Is(err, route.ErrNobody):
			nobody++
		default:
			t.Errorf("%s: have %+v, %v", key, r, err)
		}
	}
	if served == 0 || nobody == 0 {
		t.Errorf("%d keys have a worker, %d have none; want some of each", served, nobody)
	}
	cancel()
	<-done
}

func TestServerIsPolledUntilThereIsNews(t *testing.T) {
	t.Parallel()
	var polls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if have := r.URL.String(); have != "/v1/clusters/a%20b/assignment?after=3&wait=1s" || r.Header.Get("Authorization") != "Bearer t-1" {
			t.Errorf("have %s by %q", have, r.Header.Get("Authorization"))
		}
		if polls.Add(1) < 3 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_ = json.NewEncoder(w).Encode(newFake()(4))
	}))
	t.Cleanup(s.Close)
	source := route.Server{URL: s.URL + "/", Cluster: "a b", Token: "t-1", Wait: time.Second}
	if a, err := source.Await(t.Context(), 3); err != nil || a.Version != 4 || polls.Load() != 3 {
		t.Errorf("have %+v, %v after %d polls", a, err, polls.Load())
	}
}

func TestServerRefusesWhatIsNoAssignment(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`[]`, `{"owners": [1], "workers": [{"id": "w0"}]}`, `{"owners": [-2]}`, ``} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		if a, err := (route.Server{URL: s.URL, Cluster: "c"}).Await(t.Context(), 0); err == nil {
			t.Errorf("%s: have %+v, want an error", body, a)
		}
		s.Close()
	}
}
