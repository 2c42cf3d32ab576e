package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/addons"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/client"
	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/handlers"
	"procaas/handlers/balancer/clusters"
	balancerremote "procaas/handlers/balancer/remote"
	"procaas/handlers/balancer/route"
)

const clustersFile = `
clusters:
  - id: fanout
    partitions: 2
    workers:
      - {id: w0, url: "http://127.0.0.1:9101"}
      - {id: w1, url: "http://127.0.0.1:9102"}
pipelines:
  - id: tick
    stages: [{id: only, handlers: [{id: one, wait: {for: 1s}}]}]
`

// A fanout serves the API of an engine with one cluster.
type fanout struct {
	*httptest.Server
	store   store.Store
	version int64
}

func newFanout(t *testing.T) *fanout {
	t.Helper()
	f := &fanout{store: enginetest.NewMemory().Ports()}
	e, err := engine.New(engine.Options{Store: f.store, Types: handlers.All(),
		Bundle: enginetest.LoadIn(t, addons.Language(), clustersFile, handlers.All()...)})
	if err != nil {
		t.Fatal(err)
	}
	h, console := api.NewWithConsole(withProducts(e, api.Options{}, products{clusters: clusters.NewClusters(f.store, e.Bundle, e.Now)}))
	f.Server = httptest.NewServer(h)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- console.Run(ctx) }()
	t.Cleanup(func() {
		stop() // ends what waits
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.Close()
	})
	return f
}

// assign stores the next version.
func (f *fanout) assign(t *testing.T, owners ...int) {
	t.Helper()
	a := clusters.Assignment{Owners: owners, Since: make([]int64, len(owners)), Workers: []clusters.AssignedWorker{
		{ID: "w0", URL: "http://127.0.0.1:9101"}, {ID: "w1", URL: "http://127.0.0.1:9102", Zone: "a"},
	}}
	value, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.store.Documents.WriteDocuments(t.Context(), 0,
		[]store.DocumentWrite{{Kind: clusters.DocumentAssignment, Name: "fanout", Version: f.version, Value: value}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.version++
}

// get returns the answer to a call, which must be one that the description allows.
func (f *fanout) get(t *testing.T, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var body strings.Builder
	if _, err := bufio.NewReader(reply.Body).WriteTo(&body); err != nil {
		t.Fatal(err)
	}
	if reply.StatusCode != http.StatusNoContent {
		checkDescribed(t, r, reply, []byte(body.String()))
	}
	return reply.StatusCode, body.String()
}

func TestRouteNamesTheWorkerOfAKey(t *testing.T) {
	t.Parallel()
	f := newFanout(t)
	// Of two partitions, these keys are in one each.
	var keys [2]string
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint("user-", i)
		keys[engine.PartitionOf(key, 2)] = key
	}
	if status, body := f.get(t, "/v1/clusters/fanout/route?key=user-1"); status != 503 || !strings.Contains(body, "no_worker") {
		t.Errorf("before anything is assigned: have %d %s", status, body)
	}
	f.assign(t, 1, -1)
	status, body := f.get(t, "/v1/clusters/fanout/route?key="+keys[0])
	want := `{"cluster":"fanout","version":1,"partition":0,"worker":{"id":"w1","url":"http://127.0.0.1:9102","zone":"a"}}`
	if status != 200 || strings.TrimSpace(body) != want {
		t.Errorf("have %d %s, want %s", status, body, want)
	}
	for path, want := range map[string]string{
		"/v1/clusters/fanout/route?key=" + keys[1]:        "no_worker",
		"/v1/clusters/fanout/route":                       "invalid_parameter",
		"/v1/clusters/other/route?key=user-1":             "cluster_not_found",
		"/v1/clusters/other/assignment":                   "cluster_not_found",
		"/v1/clusters/fanout/assignment?after=-1":         "invalid_parameter",
		"/v1/clusters/fanout/assignment?after=x":          "invalid_parameter",
		"/v1/clusters/fanout/assignment?wait=2m":          "invalid_parameter",
		"/v1/clusters/fanout/assignment?after=0&wait=-1s": "invalid_parameter",
	} {
		if status, body := f.get(t, path); status < 400 || !strings.Contains(body, want) {
			t.Errorf("%s: have %d %s, want %s", path, status, body, want)
		}
	}
}

func TestRecordingHoldsWhatIsKept(t *testing.T) {
	t.Parallel()
	f := newFanout(t)
	var writes []store.DocumentWrite
	// The ring begins anew at any place; what is much older than the rest is a leftover.
	for place, at := range []int{1_000_004, 1_000_006, 1_000_000, 1_000_002, 900_000} {
		writes = append(writes, store.DocumentWrite{
			Kind: clusters.DocumentObservation, Name: fmt.Sprintf("fanout/%03d", place), Version: store.AnyVersion,
			Value: fmt.Appendf(nil, `{"t": %d}`, at),
		})
	}
	if _, err := f.store.Documents.WriteDocuments(t.Context(), 0, writes, nil); err != nil {
		t.Fatal(err)
	}
	recording, err := balancerremote.Recording(t.Context(), client.New(f.URL, ""), "fanout")
	if err != nil {
		t.Fatal(err)
	}
	var seen []float64
	for _, o := range recording.Observations {
		var dated struct{ T float64 }
		if err := json.Unmarshal(o, &dated); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, dated.T)
	}
	if want := []float64{1_000_000, 1_000_002, 1_000_004, 1_000_006}; !slices.Equal(seen, want) {
		t.Errorf("want %v, have %v", want, seen)
	}
	if recording.Cluster != "fanout" || recording.Partitions != 2 || len(recording.Holders) != 2 || len(recording.Workers) == 0 ||
		recording.Step != 2 {
		t.Errorf("have %+v", recording)
	}
	if status, body := f.get(t, "/admin/v1/clusters/other/recording"); status != 404 || !strings.Contains(body, "cluster_not_found") {
		t.Errorf("have %d %s", status, body)
	}
}

func TestAssignmentIsReadAndAwaited(t *testing.T) {
	t.Parallel()
	f := newFanout(t)
	if status, _ := f.get(t, "/v1/clusters/fanout/assignment"); status != 204 {
		t.Errorf("before there is one: have %d", status)
	}
	f.assign(t, 0, 1)
	if status, body := f.get(t, "/v1/clusters/fanout/assignment"); status != 200 || !strings.Contains(body, `"owners":[0,1]`) {
		t.Errorf("have %d %s", status, body)
	}
	if status, _ := f.get(t, "/v1/clusters/fanout/assignment?after=1&wait=1ms"); status != 204 {
		t.Errorf("without news: have %d", status)
	}
	source := route.Server{URL: f.URL, Cluster: "fanout", Wait: time.Minute}
	next := make(chan clusters.Assignment, 1)
	go func() {
		a, err := source.Await(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		next <- a
	}()
	f.assign(t, 1, 0)
	if a := <-next; a.Version != 2 || a.Owners[0] != 1 {
		t.Errorf("have %+v", a)
	}
}

func TestAssignmentIsStreamed(t *testing.T) {
	t.Parallel()
	f := newFanout(t)
	f.assign(t, 0, 1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/v1/clusters/fanout/assignment", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", "0")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	next := func() string {
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				return id
			}
		}
		return ""
	}
	for want := 1; want < 4; want++ {
		if have := next(); have != fmt.Sprint(want) {
			t.Fatalf("have event %q, want %d", have, want)
		}
		f.assign(t, want%2, 0)
	}
}
