package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/model"
	"procaas/engine/store"
	queueremote "procaas/handlers/queue/remote"
)

// A flakyService refuses each number a few times.
type flakyService struct {
	mu    sync.Mutex
	times int            // that each is refused
	calls map[string]int // by the body
}

func (f *flakyService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[string(body)]++; f.calls[string(body)] <= f.times {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "{}")
}

func (f *flakyService) seen(body string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[body]
}

const queueFile = `
services: [{id: work, url: %s}]
pipelines:
  - id: thumbs
    queue:
      priority: 3
      concurrency: {node: 2, key: 1}
      retry: {attempts: 3, min-delay: 10ms, factor: 1, jitter: 0}
      unique: !$ event.payload.file
      on-duplicate: merge
      merge: !$ first
    stages:
      - id: work
        handlers:
          - id: make
            retry: {attempts: 1}
            request: {service: work, path: /make, body: !$ event.payload.file}
`

// TestTasksOfPipelinesRun puts tasks into the queue of a pipeline whose service fails at
// first: each is tried again by the policy of the queue, and one that fails too often
// becomes a dead letter.
func TestTasksOfPipelinesRun(t *testing.T) {
	t.Parallel()
	work := &flakyService{times: 2, calls: map[string]int{`"dead"`: -1000}} // that one never succeeds
	service := httptest.NewServer(work)
	t.Cleanup(service.Close)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), fmt.Appendf(nil, queueFile, service.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, logs lockedBuffer
	server, stop := runNode(t, serve.Flags{
		Store: "sqlite:" + filepath.Join(t.TempDir(), "q.db"), Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 64,
		Lease: time.Minute, Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "info", Pipelines: []string{dir},
	}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &logs})
	defer stop()
	call := func(method, path, body string, into any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		data, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s %v", method, path, reply.StatusCode, data, err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	var put queueremote.TaskReceipts
	call(http.MethodPost, "/v1/queues/thumbs/tasks", `[{"payload": {"file": "a"}, "delay": "1h"}, {"payload": {"file": "a"}},
		{"payload": {"file": "b"}, "key": "k"}, {"payload": {"file": "c"}, "key": "k"}, {"payload": {"file": "dead"}}]`, &put)
	if len(put.Tasks) != 5 || put.Tasks[1].Outcome != "merged" || put.Tasks[1].ID != put.Tasks[0].ID {
		t.Fatalf("have %+v, want the second merged into the first", put)
	}
	client := client.New(server, "")
	state := func(state string) (tasks []queueremote.QueuedTask) {
		eventually(t, "a list of tasks", func() (ok bool) { // a request may take too long on a busy machine
			var err error
			tasks, err = queueremote.PeekTasks(t.Context(), client, "thumbs", url.Values{"state": {state}})
			return err == nil
		})
		return tasks
	}
	eventually(t, "two tasks to complete and one to fail", func() bool {
		return len(state("completed")) == 2 && len(state("failed")) == 1
	})
	for body, want := range map[string]int{`"b"`: 3, `"c"`: 3, `"a"`: 0, `"dead"`: -997} {
		if have := work.seen(body); have != want {
			t.Errorf("the service was called for %s %d times, want %d", body, have, want)
		}
	}
	dead, later := state("failed"), state("scheduled")
	if len(later) != 1 || later[0].Priority != 3 || later[0].Unique != "a" {
		t.Errorf("have %+v, want the one of in an hour", later)
	}
	if dead[0].Attempt != 3 || dead[0].Error == "" {
		t.Errorf("have %+v, want it failed three times", dead[0])
	}
	eventually(t, "metrics of the queue", func() bool { // counts are asked for every five seconds
		reply, err := http.Get(server + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		metrics, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`procaas_queue_lag_seconds{type="thumbs"}`, `procaas_queue_tasks{state="failed",type="thumbs"} 1`,
			`procaas_queue_started_total{type="thumbs",within="true"}`, `procaas_queue_raised_total{type="thumbs"} 0`,
			`procaas_queue_asked_timestamp_seconds{type="thumbs"} 1.`, // some billion seconds
		} {
			if !strings.Contains(string(metrics), want) {
				return false
			}
		}
		return true
	})
	command := func(line string, want ...string) {
		t.Helper()
		var shown bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", server), cli.Streams{
			In: strings.NewReader(""), Out: &shown,
			Err: &shown,
		})
		for _, text := range want {
			if code != 0 || !strings.Contains(shown.String(), text) {
				t.Errorf("%s: have %d and %q, want %q", line, code, shown.String(), text)
			}
		}
	}
	command("queue stats", "TYPE", "thumbs", "open", "ASKED", "now")
	command("queue stats --format json", `"type": "thumbs"`, `"asked_by": "here"`)
	command("queue pause thumbs --reason broken", "thumbs is paused")
	command("queue peek thumbs --state scheduled", "scheduled", later[0].ID)
	command("queue peek thumbs --state scheduled --unique a", "UNIQUE", " a ")
	command("queue peek thumbs --format json", `"unique": "a"`)
	command("runs retry --pipeline thumbs", "retried 0 runs, 1 are attempts of tasks: procaas queue retry")
	failed, err := client.Runs(t.Context(), store.RunFilter{Pipeline: "thumbs", Status: model.Failed})
	if err != nil || len(failed.Items) != 1 {
		t.Fatalf("have %d failed runs and %v, want that of the dead letter", len(failed.Items), err)
	}
	var shown bytes.Buffer
	code := Main(t.Context(), []string{"runs", "retry", failed.Items[0].ID, "--server", server}, cli.Streams{In: strings.NewReader(""), Out: &shown, Err: &shown})
	if code != cli.ExitFindings || !strings.Contains(shown.String(), "procaas queue retry thumbs --id "+dead[0].ID) {
		t.Errorf("retry of the run of a dead letter: want how to retry the task, have %d and %q", code, shown.String())
	}
	command("queue retry thumbs --error no-such-text --dry-run", "retry would change 0 tasks")
	command("queue retry thumbs --dry-run", "retry would change 1 task\n", dead[0].ID+" ", dead[0].Error)
	// While another task has its unique name, the dead letter stays.
	var taken queueremote.TaskReceipts
	call(http.MethodPost, "/v1/queues/thumbs/tasks", `[{"payload": {"file": "dead"}}]`, &taken)
	holder := taken.Tasks[0].ID
	var kept queueremote.TasksChanged
	call(http.MethodPost, "/admin/v1/queues/thumbs/retry", `{}`, &kept)
	if want := []queueremote.TaskBlocked{{Task: dead[0].ID, By: holder}}; kept.Changed != 0 || !slices.Equal(kept.Blocked, want) {
		t.Errorf("have %+v, want the task that blocks the dead letter", kept)
	}
	shown.Reset()
	code = Main(t.Context(), []string{"queue", "retry", "thumbs", "--server", server}, cli.Streams{Out: &shown, Err: &shown})
	want := "retry: 0 tasks\n  " + dead[0].ID + " stays failed: task " + holder + " has its unique name"
	if code != cli.ExitFindings || !strings.Contains(shown.String(), want) {
		t.Errorf("have %d and %q, want %q", code, shown.String(), want)
	}
	command("queue cancel thumbs --id "+holder, "cancel: 1 task\n")
	command("queue retry thumbs --error "+strings.Fields(dead[0].Error)[0]+" --reason mended", "retry: 1 task\n  "+dead[0].ID+" as ")
	superseded, err := client.Run(t.Context(), failed.Items[0].ID)
	if task, ok := model.Superseder(superseded.Reason); err != nil || !ok || superseded.Status != model.Cancelled {
		t.Errorf("have %s with the reason %q and %v, want the failed run of a retried task superseded", superseded.Status, superseded.Reason, err)
	} else {
		command("runs show "+superseded.ID, fmt.Sprintf("superseded by task %d: mended", task))
	}
	command("queue cancel thumbs --id "+later[0].ID, "cancel: 1 task\n")
	command("queue drain thumbs", "thumbs is draining")
	command("queue resume thumbs", "thumbs is open")
	eventually(t, "a link to the run of the new task", func() bool {
		again, err := client.Run(t.Context(), superseded.ID)
		return err == nil && again.RerunAs != "" && again.RerunAs != superseded.ID
	})
	command("audit --kind queue", "thumbs", "broken", "paused", "open")
	command("queue move thumbs --to other --state scheduled", "move: 0 tasks")
}

// queue stats says which table needs a vacuum, and does not name others.
func TestQueueStatsNamesTheVacuum(t *testing.T) {
	t.Parallel()
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/queues" {
			fmt.Fprint(w, `{"items": [{"type": "letters", "mode": "open"}]}`)
			return
		}
		fmt.Fprint(w, `{"items": [{"table": "tasks", "live_rows": 5, "dead_rows": 4000000, "vacuum": "vacuum (analyze, verbose) tasks"},
			{"table": "task_keys", "live_rows": 1, "dead_rows": 900}]}`)
	}))
	defer answers.Close()
	var out bytes.Buffer
	code := Main(t.Context(), []string{"queue", "stats", "--server", answers.URL}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	const want = "tasks has 4000000 dead rows and 5 in use: run vacuum (analyze, verbose) tasks in the store\n"
	if text := out.String(); code != cli.ExitFine || !strings.HasSuffix(text, want) || strings.Contains(text, "task_keys") {
		t.Errorf("exit code %d: %s", code, text)
	}
}
