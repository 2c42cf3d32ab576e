package procaas_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	procaas "procaas/clients/go"
)

// server is where a procaas with the flows of docs/authoring/clients.md listens.
func server(t *testing.T) string {
	t.Helper()
	address := os.Getenv("PROCAAS_SERVER")
	if address == "" {
		t.Fatal("PROCAAS_SERVER names no server; run in the root of the repository: go test ./cmd/procaas -run TestClients")
	}
	return address
}

// within ends a test that waits in vain.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestSubmitAndWait(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), procaas.New(server(t), procaas.Options{})
	event := procaas.Event{Type: "quote", ID: "go-1", Payload: map[string]int{"items": 3}}
	result, err := c.SubmitAndWait(ctx, event)
	if err != nil || result.Status != "succeeded" {
		t.Fatalf("have %+v, %v", result, err)
	}
	var outputs struct{ Price int }
	if err := json.Unmarshal(result.Outputs, &outputs); err != nil || outputs.Price != 60 {
		t.Errorf("want the price 60, have %s, %v", result.Outputs, err)
	}
	again, err := c.Submit(ctx, event)
	if err != nil || !again.Duplicate || again.Run != result.Run {
		t.Errorf("want the run %s again, have %+v, %v", result.Run, again, err)
	}
	run, err := c.Wait(ctx, result.Run)
	if err != nil || run.Status != "succeeded" || run.Event.ID != "go-1" {
		t.Errorf("have %+v, %v", run, err)
	}
}

func TestSubmitManyReturnsEachOutcome(t *testing.T) {
	t.Parallel()
	c := procaas.New(server(t), procaas.Options{})
	items, err := c.SubmitMany(within(t), []procaas.Event{{Type: "quote", Payload: map[string]int{"items": 1}}, {Type: "nothing"}})
	if err != nil || len(items) != 2 || items[0].Run == "" || items[1].Error == nil || items[1].Error.Code != "unknown_event_type" {
		t.Errorf("have %+v, %v", items, err)
	}
}

func TestFollowEndsWithTheRun(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), procaas.New(server(t), procaas.Options{})
	receipt, err := c.Submit(ctx, procaas.Event{Type: "quote", Payload: map[string]int{"items": 1}})
	if err != nil {
		t.Fatal(err)
	}
	var last procaas.Run
	for run, err := range c.Follow(ctx, receipt.Run) {
		if err != nil {
			t.Fatal(err)
		}
		last = run
	}
	if last.Status != "succeeded" {
		t.Errorf("want a run that has succeeded, have %+v", last)
	}
	for _, err := range c.Follow(ctx, "nothing") {
		var p *procaas.Problem
		if !errors.As(err, &p) || p.Code != "run_not_found" {
			t.Errorf("want run_not_found, have %v", err)
		}
	}
}

func TestRefusalsAreProblems(t *testing.T) {
	t.Parallel()
	_, err := procaas.New(server(t), procaas.Options{}).Submit(within(t), procaas.Event{Type: "nothing"})
	var p *procaas.Problem
	if !errors.As(err, &p) || p.Code != "unknown_event_type" || p.Status != http.StatusUnprocessableEntity || p.Temporary() {
		t.Errorf("want unknown_event_type, have %v", err)
	}
}

// TestLostAnswerStartsNoSecondRun lets the server accept an event, and loses its answer.
func TestLostAnswerStartsNoSecondRun(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	to, err := url.Parse(server(t))
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	forward.ModifyResponse = func(*http.Response) error {
		if calls.Add(1) == 1 {
			panic(http.ErrAbortHandler) // closes the connection
		}
		return nil
	}
	proxy := httptest.NewServer(forward)
	defer proxy.Close()
	receipt, err := procaas.New(proxy.URL, procaas.Options{}).Submit(ctx, procaas.Event{Type: "quote", Payload: map[string]int{"items": 1}})
	if err != nil || !receipt.Duplicate || calls.Load() != 2 {
		t.Errorf("want the run of the first attempt after 2 calls, have %+v, %v after %d", receipt, err, calls.Load())
	}
}

func put(ctx context.Context, t *testing.T, c *procaas.Client, kind string, payload any) {
	t.Helper()
	if receipt, err := c.PutTask(ctx, kind, procaas.Task{Payload: payload}); err != nil || receipt.Outcome != "added" {
		t.Fatalf("have %+v, %v", receipt, err)
	}
}

// work runs a worker until the test calls stop, which returns its error.
func work(ctx context.Context, w procaas.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestWorkerRetriesAndGivesUp(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), procaas.New(server(t), procaas.Options{})
	attempts := make(chan string, 10)
	put(ctx, t, c, "retried", "flaky")
	put(ctx, t, c, "retried", "broken")
	handle := func(_ context.Context, task procaas.QueuedTask) (any, error) {
		attempts <- string(task.Payload)
		switch {
		case string(task.Payload) == `"broken"`:
			return nil, procaas.Permanent(errors.New("no such letter"))
		case task.Attempt == 1:
			return nil, procaas.After(time.Millisecond, errors.New("busy"))
		}
		return nil, nil
	}
	stop := work(ctx, procaas.Worker{Client: c, Handlers: map[string]procaas.Handler{"retried": handle}, Concurrency: 2, Poll: time.Second})
	count := map[string]int{}
	for range 3 {
		count[<-attempts]++
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if count[`"flaky"`] != 2 || count[`"broken"`] != 1 {
		t.Errorf("want two attempts of flaky and one of broken, have %v", count)
	}
}

func TestWorkerExtendsLeases(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), procaas.New(server(t), procaas.Options{})
	put(ctx, t, c, "long", nil)
	extended := make(chan struct{}, 1)
	handle := func(ctx context.Context, task procaas.QueuedTask) (any, error) {
		for until := task.Until; !until.After(task.Until); {
			until = untilOf(ctx, t, "long", task.ID)
		}
		extended <- struct{}{}
		return nil, nil
	}
	stop := work(ctx, procaas.Worker{Client: c, Handlers: map[string]procaas.Handler{"long": handle}, Lease: 6 * time.Second, Poll: time.Second})
	<-extended
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// untilOf asks the server for the end of the lease of a task.
func untilOf(ctx context.Context, t *testing.T, kind, id string) time.Time {
	t.Helper()
	time.Sleep(50 * time.Millisecond) // between two questions
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server(t)+"/v1/queues/"+kind+"/tasks?id="+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return time.Time{}
	}
	defer reply.Body.Close()
	var page struct{ Items []procaas.QueuedTask }
	if err := json.NewDecoder(reply.Body).Decode(&page); err != nil || len(page.Items) != 1 {
		return time.Time{}
	}
	return page.Items[0].Until
}

// TestWorkerThatStopsReturnsItsTask stops a worker in the middle of a task. Another one makes the same attempt.
func TestWorkerThatStopsReturnsItsTask(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), procaas.New(server(t), procaas.Options{})
	put(ctx, t, c, "drained", nil)
	begun := make(chan struct{}, 1)
	wait := func(ctx context.Context, _ procaas.QueuedTask) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	w := procaas.Worker{
		Client: c, Handlers: map[string]procaas.Handler{"drained": wait}, Poll: time.Second, Grace: time.Millisecond,
	}
	stop := work(ctx, w)
	<-begun
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	attempt := make(chan int, 1)
	w.Handlers = map[string]procaas.Handler{"drained": func(_ context.Context, task procaas.QueuedTask) (any, error) {
		attempt <- task.Attempt
		return nil, nil
	}}
	stop = work(ctx, w)
	if n := <-attempt; n != 1 {
		t.Errorf("want the first attempt again, have attempt %d", n)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// TestWorkerAnswersARun lets a run wait for the result of a worker.
func TestWorkerAnswersARun(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), procaas.New(server(t), procaas.Options{})
	double := func(_ context.Context, task procaas.QueuedTask) (any, error) {
		var n int
		err := json.Unmarshal(task.Payload, &n)
		return 2 * n, err
	}
	stop := work(ctx, procaas.Worker{Client: c, Handlers: map[string]procaas.Handler{"scores": double}, Poll: time.Second})
	result, err := c.SubmitAndWait(ctx, procaas.Event{Type: "rate", Payload: 21})
	if err != nil || string(result.Outputs) != `{"score":42}` {
		t.Errorf("have %+v, %v", result, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
