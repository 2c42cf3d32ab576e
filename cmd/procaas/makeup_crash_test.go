package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

const forgetful = `
services: [{id: push, url: URL}]
pipelines:
  - id: work
    stages:
      - {id: s, handlers: [{id: tell, critical: false, timeout: 1m, request: {service: push, path: /, method: POST, headers: {X-Run: !$ event.id}}}]}
`

// A pushService hears of runs, keeps what it heard, and leaves some without an answer
// until it is patient no more.
type pushService struct {
	mu       sync.Mutex // guards the following
	keys     map[string]map[string]int
	answered map[string]int
	stuck    int
	free     bool
}

func (p *pushService) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	run, key := r.Header.Get("X-Run"), r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	if p.keys[run] == nil {
		p.keys[run] = map[string]int{}
	}
	p.keys[run][key]++
	n, err := strconv.Atoi(run)
	stuck := !p.free && (err != nil || n%2 == 1)
	if stuck {
		p.stuck++
	} else {
		p.answered[run]++
	}
	p.mu.Unlock()
	if stuck {
		<-r.Context().Done() // until the node is dead
	}
}

// seen tells how many runs have had an answer, and how many wait for one.
func (p *pushService) seen() (answered, stuck int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answered), p.stuck
}

// TestMakingUpSurvivesKill9 kills a serving node while runs make up what they had left out,
// some of them with an answer and some without. Afterwards each run has made its call: with
// one key, and once, unless its node died before the answer was saved.
func TestMakingUpSurvivesKill9(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		makeUpUnderKill9(t, "sqlite:"+filepath.Join(t.TempDir(), "makeup.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		makeUpUnderKill9(t, enginetest.MigratedPostgres(t))
	})
}

func makeUpUnderKill9(t *testing.T, store string) {
	const runs = 12
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	push := &pushService{keys: map[string]map[string]int{}, answered: map[string]int{}}
	service := httptest.NewServer(push)
	defer service.CloseClientConnections()
	c := newCrashing(t, store, forgetful, service.URL)
	server := c.start(ctx)
	c.steer(ctx, "switch", "off", "work/s/tell", "--forever")
	left := wire.Redrive{RunChoice: wire.RunChoice{Handler: "work/s/tell"}, Reason: "push is back"}
	var ids []string
	for n := range runs {
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "work", ID: strconv.Itoa(n), Source: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, receipt.Run)
		c.await(ctx, receipt.Run, model.Succeeded, "")
	}
	c.steer(ctx, "switch", "on", "work/s/tell")
	left.LeftBy = model.LeftByFailure
	if p, err := c.client.Preview(ctx, client.MakeUpRuns, left); err != nil || p.Total != 0 {
		t.Fatalf("want no run whose call failed, have %+v, %v", p, err)
	}
	left.LeftBy = model.LeftBySwitch
	if done, err := c.client.Redrive(ctx, client.MakeUpRuns, left); err != nil || done.Done != runs {
		t.Fatalf("want %d runs to make it up, have %+v, %v", runs, done, err)
	}
	for answered, stuck := 0, 0; answered < runs/2 || stuck < runs/2; answered, stuck = push.seen() {
		if !clock.Pause(ctx, 5*time.Millisecond) {
			t.Fatalf("want half of the runs answered, have %d, and %d without an answer", answered, stuck)
		}
	}
	server.kill()
	saved := c.checkpointed(ctx)
	push.mu.Lock()
	push.free = true
	push.mu.Unlock()
	server = c.start(ctx)
	if _, err := c.client.Redrive(ctx, client.MakeUpRuns, left); err != nil { // who does not know whether it was heard says it again
		t.Fatal(err)
	}
	for n, id := range ids {
		v := c.await(ctx, id, model.Succeeded, "")
		if len(v.Handlers) != 1 || v.Handlers[0].Outcome != model.OutcomeSucceeded {
			t.Errorf("want the call of run %d made, have %+v", n, v.Handlers)
		}
		push.check(t, strconv.Itoa(n), saved[call{id, "work/s/tell"}])
	}
	if p, err := c.client.Preview(ctx, client.MakeUpRuns, left); err != nil || p.Total != 0 {
		t.Errorf("want nothing left to make up, have %+v, %v", p, err)
	}
	server.terminate()
}

// check compares what a run has told with the promise; saved says that its outcome was in
// the store at the crash.
func (p *pushService) check(t *testing.T, run string, saved bool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := 0
	for _, n := range p.keys[run] {
		calls += n
	}
	most := 2 // the node died before it was saved
	if saved {
		most = 1
	}
	if len(p.keys[run]) != 1 || p.answered[run] < 1 || calls > most {
		t.Errorf("run %s: want one key and 1 to %d calls, have %v, of which %d had an answer", run, most, p.keys[run], p.answered[run])
	}
}

// steer runs a command for the server.
func (c *crashing) steer(ctx context.Context, args ...string) {
	c.t.Helper()
	var out bytes.Buffer
	if code := Main(ctx, append(args, "--server", "http://"+c.listen), cli.Streams{
		In: strings.NewReader(""), Out: &out,
		Err: &out,
	}); code != cli.ExitFine {
		c.t.Fatalf("procaas %s: %s", strings.Join(args, " "), out.String())
	}
}
