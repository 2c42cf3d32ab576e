package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/api/wire"
)

// A flood is what comes to a node beside a few events of others.
type flood struct {
	name     string
	pipeline string // empty for no flood
	source   string
	takes    time.Duration // of the call of a run
	rate     float64       // events a second
}

const (
	fairSlots = 64 // runs that the node works on at once
	rareRate  = 50 // events a second beside the flood
	rareTakes = 200 * time.Millisecond
)

// floods are the measured floods. Each is at least twice what the node can do.
var floods = []flood{
	{name: "nothing else"},
	{"a pipeline of another owner", "loud", "", rareTakes, 640},
	{"one that calls the same service", "near", "", rareTakes, 640},
	{"another source of the same pipeline", "rare", "loud", rareTakes, 640},
	{"a pipeline whose calls take 2 s", "loud", "", 2 * time.Second, 640},
}

// measureFairness measures the latency of rare events beside floods of others.
func measureFairness(ctx context.Context, b *bench) error {
	samples := make([][]sample, len(floods))
	for range b.rounds {
		for i, f := range floods {
			s, err := b.besideFlood(ctx, f)
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			samples[i] = append(samples[i], s)
		}
	}
	fmt.Fprintf(b.out, "latency of %d runs/s with one call of %s, beside a flood, median of %d rounds of %s\n", rareRate, rareTakes,
		b.rounds, b.span)
	worst := 0.0
	b.table("beside\tevents/s\tp50 ms\tp99 ms\tp99 of that beside nothing\t", func(w *tabwriter.Writer) {
		for i, f := range floods {
			ratio := median(ratiosBy(samples[i], samples[0], sample.p99))
			worst = max(worst, ratio)
			b.note("beside "+f.name+": p99 of that beside nothing", "", ratiosBy(samples[i], samples[0], sample.p99)...)
			fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%.1f\t%.2f\t\n", f.name, medianOf(samples[i], sample.getRate), medianOf(samples[i], sample.p50),
				medianOf(samples[i], sample.p99), ratio)
		}
	})
	b.judge("the worst p99, of that beside nothing", worst, 1.5, false)
	return nil
}

// besideFlood measures rare events on a new node, to which a flood comes after a second. The rate is that of
// the flood.
func (b *bench) besideFlood(ctx context.Context, f flood) (s sample, err error) {
	p, err := newBinary(ctx, b, onPostgres("fairness"), "--max-in-flight", strconv.Itoa(fairSlots))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := b.server.settle(ctx); err != nil {
		return s, err
	}
	all, running := errgroup.WithContext(ctx)
	flooding, stop := context.WithCancel(running)
	if f.pipeline != "" {
		all.Go(func() error {
			time.Sleep(time.Second)
			return p.flood(flooding, f, &s.rate)
		})
	}
	all.Go(func() error {
		defer stop()
		var err error
		s.latencies, err = pace(running, rareRate, b.span, func(ctx context.Context, _ int) error {
			return awaited{p}.event(ctx, timed("rare", "", rareTakes))
		})
		return err
	})
	return s, all.Wait()
}

// flood posts batches of events until the context ends.
func (p *binary) flood(ctx context.Context, f flood, rate *float64) error {
	events := make([]wire.Event, max(1, int(f.rate/20)))
	for i := range events {
		events[i] = timed(f.pipeline, f.source, f.takes)
	}
	began, batches := time.Now(), 0
	tick := time.NewTicker(time.Duration(float64(len(events)) / f.rate * float64(time.Second)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			*rate = float64(batches*len(events)) / time.Since(began).Seconds()
			return nil
		case <-tick.C:
		}
		if err := p.call(ctx, "/v1/events", events, nil); err != nil && ctx.Err() == nil {
			return err
		}
		batches++
	}
}

// timed returns an event whose run makes a call that takes about some time.
func timed(pipeline, source string, takes time.Duration) wire.Event {
	return wire.Event{Type: pipeline, Source: source, Payload: map[string]any{"takes": int64((0.5 + rand.Float64()) * float64(takes.Milliseconds()))}}
}
