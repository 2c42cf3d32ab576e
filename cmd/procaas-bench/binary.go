package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"procaas/engine/api/wire"
)

// A binary is the built procaas, as its users run it: processes that get one request per event.
type binary struct {
	path      string
	procs     int // GOMAXPROCS; 0 for all
	store     string
	dir       string
	pipelines string   // file or folder; empty for the flows of the contest
	flags     []string // more flags for serve
	nodes     []*node  // the first one gets the events
	client    *http.Client
	service   *service

	mu       sync.Mutex        // guards the following
	runs     map[string]string // flow → run, for flows that may not be durable yet
	receipts []time.Duration   // how long the posts of events have taken since the last look
}

// A storeMaker creates an empty store and returns the value of --store. A store in a file is in dir.
type storeMaker = func(ctx context.Context, b *bench, dir string) (string, error)

// onPostgres creates a store in a schema. Each contestant needs its own.
func onPostgres(schema string) storeMaker {
	return func(ctx context.Context, b *bench, _ string) (string, error) {
		name := schema
		if b.isBefore {
			name += "_before" // both binaries may be open at once
		}
		return b.server.schema(ctx, name)
	}
}

func onSQLite(_ context.Context, _ *bench, dir string) (string, error) {
	return "sqlite:" + filepath.Join(dir, "bench.db"), nil
}

// openBinary opens the built binary as a contestant.
func openBinary(on storeMaker) opener {
	return func(ctx context.Context, b *bench) (contestant, error) { return newBinary(ctx, b, on) }
}

// newBinary starts a node of the built binary on a new store.
func newBinary(ctx context.Context, b *bench, on storeMaker, flags ...string) (_ *binary, err error) {
	p := &binary{path: b.binary, procs: b.procs, flags: flags, service: b.service, client: newClient(), runs: map[string]string{}}
	if p.dir, err = os.MkdirTemp("", "procaas-bench-"); err != nil {
		return nil, err
	}
	if p.store, err = on(ctx, b, p.dir); err == nil {
		err = os.WriteFile(p.file(), b.service.pipelines(), 0o600)
	}
	if err == nil {
		err = p.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *binary) file() string { return filepath.Join(p.dir, "bench.yaml") }

// start starts another node.
func (p *binary) start(ctx context.Context) error {
	n, err := startNode(ctx, p.path, p.procs, append([]string{"--store", p.store, "--pipelines", cmp.Or(p.pipelines, p.file())}, p.flags...)...)
	if err == nil {
		p.nodes = append(p.nodes, n)
	}
	return err
}

// call posts body to the first node, or sends a GET if body is nil.
func (p *binary) call(ctx context.Context, path string, body, out any) error {
	return call(ctx, p.client, p.nodes[0].url+path, body, out)
}

// flow implements contestant with an event that has no key.
func (p *binary) flow(ctx context.Context, id string) error {
	return p.follow(ctx, id, eventOf("call", id))
}

// follow posts an event. It returns when the service has received the last call.
func (p *binary) follow(ctx context.Context, id string, event wire.Event) error {
	last := p.service.expect(id)
	var receipt wire.Receipt
	began := time.Now()
	if err := p.call(ctx, "/v1/events", event, &receipt); err != nil {
		return err
	}
	p.started(id, receipt.Run, time.Since(began))
	return waitFor(ctx, last)
}

// An awaited is a binary whose clients wait for the result of each flow.
type awaited struct{ *binary }

func openAwaited(ctx context.Context, b *bench) (contestant, error) {
	p, err := newBinary(ctx, b, onPostgres("awaited"))
	return awaited{p}, err
}

func (p awaited) flow(ctx context.Context, id string) error { return p.event(ctx, eventOf("call", id)) }

// event posts an event and waits until its run has succeeded.
func (p awaited) event(ctx context.Context, ev wire.Event) error {
	var result wire.Result
	err := p.call(ctx, "/v1/events?wait=1m", ev, &result)
	if err == nil && result.Status != "succeeded" {
		err = fmt.Errorf("run %s: want status succeeded, have %s", result.Run, result.Status)
	}
	return err
}

// durable implements contestant: flow has seen the end.
func (p awaited) durable(context.Context, []string) error { return nil }

func eventOf(pipeline, id string) wire.Event {
	return wire.Event{Type: pipeline, Payload: map[string]any{"order": id}}
}

// started notes the run of a flow, and how long the post of its event has taken.
func (p *binary) started(id, run string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[id] = run
	p.receipts = append(p.receipts, took)
}

// posts returns how long the posts of events have taken since the last call, the shortest first.
func (p *binary) posts() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.receipts
	p.receipts = nil
	slices.Sort(took)
	return took
}

// durablePoll is the pause between checks whether runs have ended.
const durablePoll = 300 * time.Microsecond

// durable implements contestant. It asks for the runs in the store.
func (p *binary) durable(ctx context.Context, ids []string) error {
	runs := map[string]bool{}
	p.mu.Lock()
	for _, id := range ids {
		runs[p.runs[id]] = true
		delete(p.runs, id)
	}
	p.mu.Unlock()
	type run struct{ ID, Status string }
	// The list of runs in flight stays short, so polling costs little.
	return poll(ctx, durablePoll, func() (bool, error) {
		var live wire.Page[run]
		var err error
		if len(runs) > 1 {
			err = p.call(ctx, "/v1/runs?in_flight=true&limit=1000", nil, &live)
		} else {
			live.Items = make([]run, 1)
			for id := range runs {
				err = p.call(ctx, "/v1/runs/"+id+"?wait=1m", nil, &live.Items[0])
			}
		}
		for _, r := range live.Items {
			switch {
			case r.Status == "failed":
				return false, fmt.Errorf("run %s has failed", r.ID)
			case runs[r.ID] && r.Status != "succeeded":
				return false, err
			}
		}
		return true, err
	})
}

func (p *binary) pid() int { return p.nodes[0].cmd.Process.Pid }

func (p *binary) close() (err error) {
	for _, n := range p.nodes {
		err = errors.Join(err, n.stop())
	}
	p.client.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(p.dir))
}
