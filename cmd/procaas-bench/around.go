package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/api/wire"
)

// A tab is an open page of the console, which asks again after tabPause.
const (
	aroundPipelines = 40
	aroundHandlers  = 5
	tabs            = 20
	tabPause        = 2 * time.Second
	askings         = 200
)

// parkedPipeline has runs that wait for an hour.
const parkedPipeline = `
  - id: park
    stages: [{id: only, handlers: [{id: wait, wait: {for: 1h}}]}]
`

// measureAround measures what a node costs beside its flows: what people and monitors ask, runs that wait, and its start.
func measureAround(ctx context.Context, b *bench) error {
	fmt.Fprintf(b.out, "a node with %d handlers and %d runs\n", aroundPipelines*aroundHandlers, b.backlog)
	for _, on := range []struct {
		name string
		make storeMaker
	}{{"PostgreSQL", onPostgres("around")}, {"SQLite", onSQLite}} {
		prefix := "around, " + on.name + ": "
		err := b.eachRound(ctx, func(ctx context.Context, b *bench) error {
			return b.around(ctx, func(what, unit string, value float64) { b.note(prefix+what, unit, value) }, on.make)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", on.name, err)
		}
		fmt.Fprintln(b.out, on.name)
		b.report(prefix)
	}
	return nil
}

// A notice keeps a figure of what a node does beside flows.
type notice func(what, unit string, value float64)

func (b *bench) around(ctx context.Context, note notice, on storeMaker) (err error) {
	p, err := newBinary(ctx, b, on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.addPipelines(ctx); err != nil {
		return err
	}
	for i := range 4 * aroundPipelines { // each handler has been called
		if err := p.call(ctx, "/v1/events?wait=1m", eventOf(fmt.Sprint("busy-", i%aroundPipelines), "first"), nil); err != nil {
			return err
		}
	}
	if err := p.fill(ctx, "nothing", b.backlog); err != nil {
		return err
	}
	if err := p.asked(ctx, note, "at rest"); err != nil {
		return err
	}
	loaded, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error {
		_, err := pace(loaded, 50, time.Hour, func(ctx context.Context, i int) error {
			return p.call(ctx, "/v1/events", eventOf(fmt.Sprint("busy-", i%aroundPipelines), "load"), nil)
		})
		if loaded.Err() != nil {
			return nil
		}
		return err
	})
	err = p.tabs(ctx, note, b.span, "beside 250 calls/s")
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	if err := p.parked(ctx, note, b.backlog); err != nil {
		return err
	}
	return p.restarted(ctx, note, b.backlog)
}

// addPipelines starts the node again with more pipelines.
func (p *binary) addPipelines(ctx context.Context) error {
	file := bytes.NewBuffer(p.service.pipelines())
	file.WriteString(parkedPipeline)
	for i := range aroundPipelines {
		fmt.Fprintf(file, "  - id: busy-%d\n    stages:\n", i)
		for j := range aroundHandlers {
			fmt.Fprintf(file, "      - {id: stage-%d, handlers: [{id: call-%d, request: {service: noop, path: /}}]}\n", j, j)
		}
	}
	if err := os.WriteFile(p.file(), file.Bytes(), 0o600); err != nil {
		return err
	}
	return p.restart(ctx)
}

// restart kills the node, and starts another one on its store.
func (p *binary) restart(ctx context.Context) error {
	err := p.nodes[0].kill()
	p.nodes = nil
	return errors.Join(err, p.start(ctx))
}

// fill submits events, and waits until no run of them is due.
func (p *binary) fill(ctx context.Context, pipeline string, events int) error {
	if err := p.submit(ctx, pipeline, events); err != nil {
		return err
	}
	return poll(ctx, 50*time.Millisecond, func() (bool, error) {
		var running wire.Page[struct{ Status string }]
		err := p.call(ctx, "/v1/runs?in_flight=true&limit=1000", nil, &running)
		for _, r := range running.Items {
			if r.Status != "parked" {
				return false, err
			}
		}
		return true, err
	})
}

func (p *binary) submit(ctx context.Context, pipeline string, events int) error {
	const batch = 1000
	for left := events; left > 0; left -= batch {
		some := make([]wire.Event, min(left, batch))
		for i := range some {
			some[i] = eventOf(pipeline, "around")
		}
		if err := p.call(ctx, "/v1/events", some, nil); err != nil {
			return err
		}
	}
	return nil
}

// asked measures what single requests cost, and open tabs.
func (p *binary) asked(ctx context.Context, note notice, when string) error {
	for _, path := range []string{"/metrics", "/v1/runs?limit=100", "/v1/runs?limit=1000", "/v1/runs?limit=100&status=succeeded", "/", "/console/runs"} {
		began := cpuOf(p.pid())
		for range askings {
			if _, err := p.load(ctx, path, "no-cache"); err != nil {
				return err
			}
		}
		note("GET "+path, "ms", (cpuOf(p.pid())-began).Seconds()*1000/askings)
	}
	return p.tabs(ctx, note, 2*tabPause, when)
}

// tabs measures open pages of the console beside the same time without them.
func (p *binary) tabs(ctx context.Context, note notice, span time.Duration, when string) error {
	span = max(span, 2*tabPause)
	for _, path := range []string{"/", "/console/runs"} {
		var used [2]time.Duration
		for i := range used {
			began := cpuOf(p.pid())
			_, err := pace(ctx, tabs/tabPause.Seconds(), span, func(ctx context.Context, _ int) error {
				if i == 0 {
					return nil
				}
				_, err := p.load(ctx, path, "max-age=1")
				return err
			})
			if err != nil {
				return err
			}
			used[i] = cpuOf(p.pid()) - began
		}
		share := 100 * (used[1] - used[0]).Seconds() / span.Seconds() / tabs
		note(fmt.Sprintf("each tab of %s %s", path, when), "% of a core", share)
	}
	return nil
}

// parked measures the memory of runs that wait for a time.
func (p *binary) parked(ctx context.Context, note notice, runs int) error {
	if err := p.restart(ctx); err != nil {
		return err
	}
	for parked := 0; ; parked += runs {
		memory, err := p.resident()
		if err != nil {
			return err
		}
		note(fmt.Sprintf("memory with %d parked runs", parked), "MB", memory)
		if parked == 2*runs {
			return nil
		}
		if err := p.fill(ctx, "park", runs); err != nil {
			return err
		}
	}
}

// restarted measures the start of a node beside runs that wait for their turn.
func (p *binary) restarted(ctx context.Context, note notice, runs int) error {
	if err := errors.Join(p.submit(ctx, "slow", runs), p.restart(ctx)); err != nil {
		return err
	}
	took := time.Since(p.nodes[0].began)
	note("start until /readyz beside waiting and parked runs", "s", took.Seconds())
	return nil
}

// resident returns the memory of the node in MB.
func (p *binary) resident() (float64, error) { return memoryOf(p.pid()) }

// memoryOf returns the memory of a process in MB.
func memoryOf(pid int) (float64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseFloat(kb, 64)
	return n / 1000, err
}
