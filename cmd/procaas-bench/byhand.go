package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// This file has hand-written programs for the same flow, with and without shared commits.

// A contestant runs flows.
type contestant interface {
	// flow runs one flow. It returns when the flow's last call has been made, or later.
	flow(ctx context.Context, id string) error

	// durable returns when the given flows, which have returned from flow, have ended durably.
	durable(ctx context.Context, ids []string) error

	// pid returns the program's process, or 0 for this one.
	pid() int

	close() error
}

// steps is the number of POSTs of a flow.
const steps = 3

// A byHand is a hand-written program. It saves the result of each step, to read it after a crash.
type byHand struct {
	url  string
	pool *pgxpool.Pool
	http *http.Client
	save func(ctx context.Context, p progress) error
	stop func()
}

// progress is the content of a row.
type progress struct {
	id      string
	step    int
	results []byte // JSON
}

const (
	createProgress = "create table progress (id text primary key, step integer not null, results jsonb not null)"
	saveProgress   = `insert into progress (id, step, results) values ($1, $2, $3)
	on conflict (id) do update set step = excluded.step, results = excluded.results`
	saveMany = `insert into progress (id, step, results) select * from unnest($1::text[], $2::int[], $3::jsonb[])
	on conflict (id) do update set step = excluded.step, results = excluded.results`
)

// openByHand opens a hand-written contestant. The caller sets save.
func openByHand(ctx context.Context, b *bench, schema string, connections int) (*byHand, error) {
	dsn, err := b.server.schema(ctx, schema)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, createProgress); err != nil {
		pool.Close()
		return nil, err
	}
	return &byHand{url: b.service.url + "/", pool: pool, http: newClient(), stop: func() {}}, nil
}

// openNaive opens the program that commits each step separately.
func openNaive(connections int) opener {
	return func(ctx context.Context, b *bench) (contestant, error) {
		h, err := openByHand(ctx, b, "naive", connections)
		if err != nil {
			return nil, err
		}
		h.save = func(ctx context.Context, p progress) error {
			_, err := h.pool.Exec(ctx, saveProgress, p.id, p.step, p.results)
			return err
		}
		return h, nil
	}
}

func (h *byHand) close() error {
	h.stop()
	h.pool.Close()
	h.http.CloseIdleConnections()
	return nil
}

// durable implements contestant: flow has seen the commit.
func (h *byHand) durable(context.Context, []string) error { return nil }

func (h *byHand) pid() int { return 0 }

func (h *byHand) flow(ctx context.Context, id string) error {
	var results []json.RawMessage
	for step := range steps {
		result, err := h.post(ctx, id, step)
		if err != nil {
			return err
		}
		results = append(results, result)
		text, err := json.Marshal(results)
		if err != nil {
			return err
		}
		if err := h.save(ctx, progress{id, step + 1, text}); err != nil {
			return err
		}
	}
	return nil
}

func (h *byHand) post(ctx context.Context, id string, step int) (json.RawMessage, error) {
	body, err := json.Marshal(map[string]any{"order": id, "step": step})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprint(id, "-", step))
	resp, err := h.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var result json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&result); err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("want status 200, have %d", resp.StatusCode)
	}
	return result, err
}

// A group collects the rows of many flows and commits them together, one transaction per connection at a time.
type group struct {
	pool  *pgxpool.Pool
	queue chan saving
}

// A saving is a row whose flow waits.
type saving struct {
	progress
	done chan error
}

// groupMost is the maximum number of rows per transaction.
const groupMost = 256

// openGrouped opens the program whose flows share commits.
func openGrouped(connections int) opener {
	return func(ctx context.Context, b *bench) (contestant, error) {
		h, err := openByHand(ctx, b, "grouped", connections)
		if err != nil {
			return nil, err
		}
		g := &group{pool: h.pool, queue: make(chan saving, 4*groupMost)}
		ctx, cancel := context.WithCancel(ctx)
		var lanes sync.WaitGroup
		for range connections {
			lanes.Go(func() { g.lane(ctx) })
		}
		h.stop = func() { cancel(); lanes.Wait() }
		h.save = g.save
		return h, nil
	}
}

func (g *group) save(_ context.Context, p progress) error {
	s := saving{p, make(chan error, 1)}
	g.queue <- s
	return <-s.done
}

// lane commits collected rows until ctx ends.
func (g *group) lane(ctx context.Context) {
	for {
		var batch []saving
		select {
		case <-ctx.Done():
			return
		case s := <-g.queue:
			batch = append(batch, s)
		}
		for len(batch) < groupMost && len(g.queue) > 0 {
			select {
			case s := <-g.queue:
				batch = append(batch, s)
			default: // another lane was faster
			}
		}
		err := g.commit(ctx, batch)
		for _, s := range batch {
			s.done <- err
		}
	}
}

func (g *group) commit(ctx context.Context, batch []saving) error {
	var ids, results []string
	var steps []int32
	for _, s := range batch {
		ids, steps, results = append(ids, s.id), append(steps, int32(s.step)), append(results, string(s.results))
	}
	tag, err := g.pool.Exec(ctx, saveMany, ids, steps, results)
	if err == nil && tag.RowsAffected() != int64(len(batch)) {
		return errors.New("want all rows written")
	}
	return err
}
