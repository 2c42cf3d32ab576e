package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest/patience"
	"procaas/engine/sqlite"
	"procaas/engine/store"
	queueremote "procaas/handlers/queue/remote"
)

// A taskServer serves a queue of tasks to tests.
type taskServer struct {
	*testing.T
	tasks   *store.TaskStore
	handler http.Handler
}

func newTaskServer(t *testing.T, o api.Options, strict ...bool) *taskServer {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "tasks.db"), sqlite.Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	p := products{tasks: store.Tasks(), strict: len(strict) > 0 && strict[0]}
	return &taskServer{t, p.tasks, api.New(withProducts(newFake(taxi(t)), o, p))}
}

// call makes a call whose reply must have a status and be as described.
func (s *taskServer) call(method, path, body string, status int, out any) {
	s.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	checkDescribed(s.T, r, w.Result(), w.Body.Bytes())
	if w.Code != status {
		s.Fatalf("%s %s %s: have %d %s, want %d", method, path, body, w.Code, w.Body, status)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
		s.Fatal(err)
	}
}

func (s *taskServer) claim(body string) queueremote.Claimed {
	s.Helper()
	var out queueremote.Claimed
	s.call(http.MethodPost, "/v1/queues/claim", body, 200, &out)
	return out
}

func TestWorkersTakeTasksOverHTTP(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	var put queueremote.TaskReceipts
	s.call(http.MethodPost, "/v1/queues/thumbs/tasks", `[{"payload": {"n": 1}}, {"payload": {"n": 2}, "priority": 5, "key": "k"},
		{"payload": 3, "delay": "1h"}, {"unique": "u", "timeout": "5s"}, {"unique": "u"}]`, 202, &put)
	if len(put.Tasks) != 5 || put.Tasks[4].Outcome != "kept" || put.Tasks[4].ID != put.Tasks[3].ID {
		t.Fatalf("have %+v", put)
	}
	got := s.claim(`{"worker": "w1", "types": [{"type": "thumbs", "limit": 2}, {"type": "other"}]}`)
	if len(got.Items) != 2 || string(got.Items[0].Payload) != `{"n":2}` || got.Items[0].State != "running" || got.Items[0].Receipt == "" {
		t.Fatalf("have %+v, want the one of the greater priority first", got)
	}
	first, second := got.Items[0].Receipt, got.Items[1].Receipt
	var done queueremote.TasksDone
	s.call(http.MethodPost, "/v1/queues/heartbeat", fmt.Sprintf(`{"receipts": [%q], "lease": 60}`, first), 200, &done)
	s.call(http.MethodPost, "/v1/queues/complete", fmt.Sprintf(`{"receipts": [%q, %q]}`, first, first), 200, &done)
	if done.Done != 2 || len(done.Lost) != 0 {
		t.Errorf("a receipt that is given twice: have %+v", done)
	}
	s.call(http.MethodPost, "/v1/queues/complete", fmt.Sprintf(`{"receipts": [%q]}`, first), 200, &done)
	if done.Done != 0 || len(done.Lost) != 1 {
		t.Errorf("what is done is done: have %+v", done)
	}
	s.call(http.MethodPost, "/v1/queues/fail", fmt.Sprintf(`{"tasks": [{"receipt": %q, "error": "no space"}]}`, second), 200, &done)
	if done.Done != 1 {
		t.Errorf("have %+v", done)
	}
	var page wire.Page[queueremote.QueuedTask]
	s.call(http.MethodGet, "/v1/queues/thumbs/tasks?state=scheduled", "", 200, &page)
	if len(page.Items) != 2 || page.Items[0].Error != "no space" || page.Items[0].Attempt != 2 {
		t.Errorf("have %+v, want the failed one before the one in an hour", page.Items)
	}
	last := s.claim(fmt.Sprintf(`{"worker": "w1", "complete": [%q], "types": [{"type": "thumbs"}]}`, first))
	if len(last.Items) != 1 || last.Items[0].Unique != "u" || last.Items[0].Timeout != 5 || len(last.Lost) != 1 {
		t.Fatalf("have %+v", last)
	}
	s.call(http.MethodPost, "/v1/queues/snooze", fmt.Sprintf(`{"tasks": [{"receipt": %q, "delay": "0s"}]}`, last.Items[0].Receipt), 200,
		&done)
	last = s.claim(`{"worker": "w2", "types": [{"type": "thumbs"}]}`)
	s.call(http.MethodPost, "/v1/queues/fail", fmt.Sprintf(`{"tasks": [{"receipt": %q, "error": "bad", "final": true}]}`,
		last.Items[0].Receipt), 200, &done)
	var stats wire.Page[queueremote.QueueStats]
	s.call(http.MethodGet, "/v1/queues", "", 200, &stats)
	if len(stats.Items) != 1 || stats.Items[0].Failed != 1 || stats.Items[0].Scheduled != 2 || stats.Items[0].Running != 0 {
		t.Errorf("have %+v", stats)
	}
}

func TestAClaimWaitsForATask(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	got := make(chan queueremote.Claimed, 1)
	go func() { got <- s.claim(`{"worker": "w1", "types": [{"type": "thumbs"}], "wait": "20s"}`) }()
	deadline := patience.After(t, time.Minute)
	for {
		s.call(http.MethodPost, "/v1/queues/thumbs/tasks", `{"payload": 1}`, 202, nil)
		select {
		case c := <-got:
			if len(c.Items) != 1 {
				t.Errorf("have %+v, want a task", c)
			}
			return
		case <-deadline:
			t.Fatal("nothing is taken")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestAClaimEndsWithTheServer(t *testing.T) {
	t.Parallel()
	closing := make(chan struct{})
	s := newTaskServer(t, api.Options{Closing: closing})
	close(closing)
	if got := s.claim(`{"worker": "w1", "types": [{"type": "thumbs"}], "wait": "20s"}`); len(got.Items) != 0 {
		t.Errorf("have %+v", got)
	}
}

// A worker may serve thousands of types with one claim.
func TestOneClaimTakesThousandsOfTypes(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	s.call(http.MethodPost, "/v1/queues/type-4321/tasks", `{"payload": 1}`, 202, nil)
	types := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"type": "type-%d", "limit": 10}`, i)
		}
		return fmt.Sprintf(`{"worker": "w", "types": [%s]}`, strings.Join(list, ","))
	}
	if got := s.claim(types(10_000)); len(got.Items) != 1 || got.Items[0].Type != "type-4321" {
		t.Errorf("have %+v, want the task of one of the types", got.Items)
	}
	var refused struct {
		Errors []struct{ Location, Message string }
	}
	s.call(http.MethodPost, "/v1/queues/claim", types(10_001), 400, &refused)
	if len(refused.Errors) != 1 || refused.Errors[0].Location != "/types" ||
		refused.Errors[0].Message != "want an array of 1 to 10000 objects, have an array of 10001" {
		t.Errorf("have %+v, want how many types a claim may have", refused)
	}
}

// A worker over HTTP holds tasks that it begins later, as one in Go does.
func TestWorkersPrefetchTasksOverHTTP(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	s.call(http.MethodPost, "/v1/queues/thumbs/tasks", `[{}, {}]`, 202, nil)
	states := func(want ...string) {
		t.Helper()
		var list struct{ Items []queueremote.QueuedTask }
		s.call(http.MethodGet, "/v1/queues/thumbs/tasks", "", 200, &list)
		var have []string
		for i := range list.Items {
			have = append(have, list.Items[i].State)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("the tasks are %v, want %v", have, want)
		}
	}
	got := s.claim(`{"worker": "w", "prefetch": true, "types": [{"type": "thumbs", "limit": 2}]}`)
	if len(got.Items) != 2 || got.Items[0].State != "starting" {
		t.Fatalf("have %+v, want two tasks that are starting", got.Items)
	}
	states("starting", "starting")
	beat := func(i int, more string) {
		t.Helper()
		s.call(http.MethodPost, "/v1/queues/heartbeat", fmt.Sprintf(`{"receipts": [%q]%s}`, got.Items[i].Receipt, more), 200, nil)
	}
	beat(0, `, "starting": true`)
	states("starting", "starting")
	beat(1, "")
	states("running", "starting")
	beat(1, `, "starting": true`)
	states("running", "starting")
	var stats wire.Page[queueremote.QueueStats]
	s.call(http.MethodGet, "/v1/queues", "", 200, &stats)
	if len(stats.Items) != 1 || stats.Items[0].Starting != 1 || stats.Items[0].Running != 1 {
		t.Errorf("have %+v, want one that starts and one that runs", stats)
	}
}

// A payload has the kinds of numbers that its sender wrote.
func TestTasksOfTheAPIKeepKindsOfNumbers(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	s.call(http.MethodPost, "/v1/queues/bill/tasks", `{"payload": [5.0, 5, 1e22]}`, 202, nil)
	var page wire.Page[queueremote.QueuedTask]
	s.call(http.MethodGet, "/v1/queues/bill/tasks", "", 200, &page)
	if len(page.Items) != 1 || string(page.Items[0].Payload) != `[5.0,5,1e+22]` {
		t.Errorf("have %+v, want the payload [5.0,5,1e+22]", page.Items)
	}
}

func TestQueuesRefuse(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"claim", `{"types": [{"type": "x"}]}`, 400},
		{"claim", `{"worker": "w", "types": []}`, 400},
		{"claim", `{"worker": "w", "types": [{"type": "x", "limit": 5000}]}`, 400},
		{"claim", `{"worker": "w", "types": [{"type": "x"}], "wait": "1h"}`, 400},
		{"claim", `{"worker": "w", "types": [{"type": "x"}], "lease": "1ms"}`, 400},
		{"complete", `{"receipts": ["nonsense"]}`, 400},
		{"complete", `{"receipts": ["1.1.1."]}`, 400},
		{"complete", `{"receipts": []}`, 400},
		{"complete", `{}`, 400},
		{"heartbeat", `{"lease": 5}`, 400},
		{"x/tasks", `{"unique": "u", "on_duplicate": "sometimes"}`, 400},
		{"fail", `{"tasks": [{"receipt": "1.0.1.x"}]}`, 400},
		{"fail", `{"tasks": {}}`, 400},
		{"snooze", `[]`, 400},
		{"x/tasks", `{"priority": "high"}`, 400},
		{"x/tasks", `{"on_duplicate": "keep"}`, 422},
		{"x/tasks", `[{}, {"on_duplicate": "keep"}]`, 207},
	} {
		s.call(http.MethodPost, "/v1/queues/"+c.path, c.body, c.status, nil)
	}
	s.call(http.MethodGet, "/v1/queues/x/tasks?state=lost", "", 400, nil)
	if err := s.tasks.Admin.SetTaskMode(t.Context(), "x", store.TasksDraining, "moving"); err != nil {
		t.Fatal(err)
	}
	s.call(http.MethodPost, "/v1/queues/x/tasks", `{}`, 409, nil)
}

func TestWorkersWorkAtTheirTypesOnly(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{Token: "0123456789abcdef0123456789abcdef"})
	s.call(http.MethodPost, "/v1/queues/claim", `{"worker": "w", "types": [{"type": "x"}]}`, 401, nil)
}
