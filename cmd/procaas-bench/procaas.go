package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/transport"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// pipelines are the measured pipelines. call is the flow of the contest. entity is the same for events with ids
// and keys, so duplicates are detected and the order is kept. slow has a slow first call, and steps has three
// slow calls. nothing makes no call. mixed makes none either: its runs succeed, fail or wait, as their events say.
// rare, near and loud make a call that takes as long as the event says.
const pipelines = `
services: [{id: noop, url: %[1]s}, {id: loud, url: %[1]s}]
flows: [{id: entities}]
pipelines:
  - id: call
    stages: &stages
      - {id: first, handlers: [{id: one, request: {service: noop, path: /, body: {order: !$ event.payload.order, step: 0}}, result: {a: !$ sources.one.response}}]}
      - {id: second, handlers: [{id: two, request: {service: noop, path: /, body: {order: !$ event.payload.order, step: 1}}, result: {b: !$ sources.two.response}}]}
      - {id: third, handlers: [{id: three, request: {service: noop, path: %[2]s, body: {order: !$ event.payload.order, step: 2}}, result: {c: !$ sources.three.response}}]}
    shared-state: {a: null, b: null, c: null}
  - id: entity
    flow: entities
    shared-state: {a: null, b: null, c: null}
    stages: *stages
  - id: slow
    stages:
      - {id: first, handlers: [{id: slow, request: {service: noop, path: %[3]s, body: {order: !$ event.payload.order}}}]}
      - {id: second, handlers: [{id: last, request: {service: noop, path: %[2]s, body: {order: !$ event.payload.order}}}]}
  - id: steps
    stages:
      - {id: first, handlers: [{id: one, request: {service: noop, path: %[3]s, body: {order: !$ event.payload.order}}}]}
      - {id: second, handlers: [{id: two, request: {service: noop, path: %[3]s, body: {order: !$ event.payload.order}}}]}
      - {id: third, handlers: [{id: three, request: {service: noop, path: %[3]s, body: {order: !$ event.payload.order}}}]}
      - {id: fourth, handlers: [{id: last, request: {service: noop, path: %[2]s, body: {order: !$ event.payload.order}}}]}
  - id: nothing
    shared-state: {a: 0}
    stages: [{id: only, handlers: [{id: count, set: {a: 1}}]}]
  - id: mixed
    flow: entities
    stages:
      - {id: judge, handlers: [{id: refuse, enabled: !$ event.payload.fails, fail: {message: out of stock}}]}
      - {id: rest, handlers: [{id: sleep, enabled: !$ event.payload.waits, wait: {for: 24h}}]}
  - id: rare
    owner: rare
    stages: [{id: only, handlers: [{id: call, request: {service: noop, path: %[4]s, body: {takes: !$ event.payload.takes}}}]}]
  - id: near
    owner: near
    stages: [{id: only, handlers: [{id: call, request: {service: noop, path: %[4]s, body: {takes: !$ event.payload.takes}}}]}]
  - id: loud
    owner: loud
    stages: [{id: only, handlers: [{id: call, request: {service: loud, path: %[4]s, body: {takes: !$ event.payload.takes}}}]}]
`

// A system is the engine with its store and its API.
type system struct {
	store  store.Store
	ends   *endings // of the runs of store
	engine *engine.Engine
	api    *http.Server
	url    string
	client *http.Client

	cancel  context.CancelFunc // of working; nil while it does not work
	working sync.WaitGroup
}

// openSystem opens a system in its own schema.
func openSystem(ctx context.Context, b *bench, schema string) (*system, error) {
	dsn, err := b.server.schema(ctx, schema)
	if err != nil {
		return nil, err
	}
	types := addons.HandlerTypes()
	o := dsl.Options{Language: addons.Language()}
	for _, t := range types {
		o.Types = append(o.Types, t.Type)
	}
	files := []diag.File{{Name: "bench.yaml", Data: b.service.pipelines()}}
	bundle, found := dsl.Load(files, o)
	if bundle == nil {
		return nil, fmt.Errorf("pipelines: %v", found)
	}
	db, err := postgres.Open(ctx, dsn, postgres.Options{Migrate: true})
	if err != nil {
		return nil, err
	}
	ports := db.Ports()
	s := &system{store: ports, ends: &endings{Ledger: ports.Ledger}}
	s.store.Ledger = s.ends
	s.engine, err = engine.New(engine.Options{Store: s.store, Types: types, Bundle: bundle})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l, err := transport.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.api = &http.Server{Handler: api.New(api.Options{Engine: api.Of(s.engine)}), ReadHeaderTimeout: time.Second}
	s.url = "http://" + l.Addr().String() + "/v1/events"
	s.client = newClient()
	s.working.Go(func() { _ = s.api.Serve(l) })
	return s, nil
}

// work makes the engine run events from now on.
func (s *system) work() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.working.Go(func() { _ = s.engine.Run(ctx) })
	for s.engine.Healthy(ctx) != nil {
		time.Sleep(time.Millisecond)
	}
}

func (s *system) close() error {
	if s.cancel != nil {
		s.cancel()
	}
	err := s.api.Close()
	s.working.Wait()
	s.client.CloseIdleConnections()
	return errors.Join(err, s.store.Close())
}

// An endings is a ledger that reports ended runs to waiting flows.
type endings struct {
	store.Ledger

	runs sync.Map // id → chan struct{}, closed at the end; unused while all is set

	left atomic.Int64
	all  chan struct{} // closed when no expected run is left; nil if none is expected
}

// expect makes the store count ended runs. Call it before work.
func (s *endings) expect(runs int) {
	s.left.Store(int64(runs))
	s.all = make(chan struct{})
}

// of returns the channel of a run. The first caller creates it.
func (s *endings) of(run string) chan struct{} {
	c, _ := s.runs.LoadOrStore(run, make(chan struct{}))
	return c.(chan struct{})
}

// Commit implements [store.Ledger].
func (s *endings) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	errs, err := s.Ledger.Commit(ctx, node, changes)
	for i, c := range changes {
		if err == nil && errs[i] == nil && c.Status.Ended() {
			s.end(c.Run)
		}
	}
	return errs, err
}

func (s *endings) end(run string) {
	if s.all == nil {
		close(s.of(run))
		return
	}
	if s.left.Add(-1) == 0 {
		close(s.all)
	}
}

func (s *endings) wait(ctx context.Context, run string) error {
	err := waitFor(ctx, s.of(run))
	if err == nil {
		s.runs.Delete(run)
	}
	return err
}

// An entrant makes flows of events that submit passes to the engine.
type entrant struct {
	*system
	event func(id string) model.Event
}

func (e *entrant) flow(ctx context.Context, id string) error {
	run, err := e.submit(ctx, e.event(id))
	if err != nil {
		return err
	}
	return e.ends.wait(ctx, run)
}

// plain returns an event without an id and a key, so the engine does only what the hand-written programs do.
func plain(id string) model.Event {
	return model.Event{Type: "call", Payload: map[string]any{"order": id}}
}

// keyed returns an event whose duplicates are detected, and which is ordered by its key.
func keyed(id string) model.Event {
	return model.Event{Type: "entity", ID: id, Source: "bench", Key: "key-" + id, Payload: map[string]any{"order": id}}
}

// durable implements contestant: flow has seen the commit.
func (e *entrant) durable(context.Context, []string) error { return nil }

func (e *entrant) pid() int { return 0 }

// openProcaas opens the engine in this process.
func openProcaas(schema string, event func(string) model.Event) opener {
	return func(ctx context.Context, b *bench) (contestant, error) {
		s, err := openSystem(ctx, b, schema)
		if err != nil {
			return nil, err
		}
		s.work()
		return &entrant{system: s, event: event}, nil
	}
}

func (s *system) submit(ctx context.Context, ev model.Event) (string, error) {
	out, err := s.engine.Submit(ctx, []intake.Submission{{Event: ev}})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return "", err
	}
	return out[0].Receipt.Run, nil
}

// submissions returns a batch of events that nothing serves soon.
func submissions(n int, event func(i int) model.Event) []intake.Submission {
	out := make([]intake.Submission, n)
	for i := range out {
		out[i].Event = event(i)
	}
	return out
}
