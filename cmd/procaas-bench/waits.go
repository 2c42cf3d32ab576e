package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"procaas/engine/api/wire"
)

// settles is how long a node rests before it counts as being at rest. It collects its garbage meanwhile.
const settles = 15 * time.Second

// atRest measures a node that has nothing to do, for five times the span. It returns its memory in MB.
func (p *binary) atRest(ctx context.Context, span time.Duration, note notice) (memory float64, err error) {
	if err := pause(ctx, settles); err != nil {
		return 0, err
	}
	used, began := cpuOf(p.pid()), time.Now()
	if err := pause(ctx, 5*span); err != nil {
		return 0, err
	}
	note("at rest", "% of a core", 100*(cpuOf(p.pid())-used).Seconds()/time.Since(began).Seconds())
	memory, err = p.resident()
	note("memory at rest", "MB", memory)
	return memory, err
}

// pause waits for a time.
func pause(ctx context.Context, span time.Duration) error {
	select {
	case <-time.After(span):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// manyWaits is how many runs wait at once.
const manyWaits = 10_000

// measureWaits measures a node with many runs that wait for a time, and one with many in calls.
func measureWaits(ctx context.Context, b *bench) error {
	const prefix = "10,000 runs "
	err := b.eachRound(ctx, func(ctx context.Context, b *bench) error {
		// A node keeps a part of its places free for quiet pipelines, so it needs more of them than there are runs.
		for _, way := range []struct {
			name  string
			flags []string
			fill  func(context.Context, *binary) error
		}{
			{"in wait: ", nil, func(ctx context.Context, p *binary) error { return p.fill(ctx, "park", manyWaits) }},
			{"in calls: ", []string{"--max-in-flight", fmt.Sprint(manyWaits * 11 / 10)}, fillCalls},
		} {
			if err := b.waiting(ctx, way.flags, way.fill, func(what, unit string, value float64) {
				b.note(prefix+way.name+what, unit, value)
			}); err != nil {
				return fmt.Errorf("%s%w", way.name, err)
			}
		}
		return nil
	})
	fmt.Fprintf(b.out, "a node that has nothing to do but to wait, median of %d rounds\n", b.rounds)
	b.report(prefix)
	return err
}

func (b *bench) waiting(ctx context.Context, flags []string, fill func(context.Context, *binary) error, note notice) (err error) {
	p, err := newBinary(ctx, b, onPostgres("waits"), flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	p.pipelines = p.dir
	more := fmt.Appendf(nil, longPipelines, b.service.url, timedPath)
	if err := errors.Join(os.WriteFile(filepath.Join(p.dir, "long.yaml"), more, 0o600), p.restart(ctx), fill(ctx, p)); err != nil {
		return err
	}
	_, err = p.atRest(ctx, b.span, note)
	return err
}

// longPipelines have runs that wait for an hour, and runs whose call lasts as long as all measurements of it.
const longPipelines = `
services: [{id: long, url: %s, concurrency: fixed, max-in-flight: 10000}]
pipelines:
  - id: long
    stages:
      - id: only
        handlers:
          - {id: call, timeout: 10m, request: {service: long, path: %s, body: {takes: 500000}}}
` + parkedPipeline

// fillCalls makes runs, and waits until each is in its call.
func fillCalls(ctx context.Context, p *binary) error {
	if err := p.submit(ctx, "long", manyWaits); err != nil {
		return err
	}
	return poll(ctx, 200*time.Millisecond, func() (bool, error) {
		var services wire.Page[struct {
			ID       string
			InFlight int `json:"in_flight"`
		}]
		err := p.call(ctx, "/admin/v1/services", nil, &services)
		for _, s := range services.Items {
			if s.ID == "long" {
				return s.InFlight == manyWaits, err
			}
		}
		return false, err
	})
}
