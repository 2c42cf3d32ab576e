package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/api/wire"
	"procaas/engine/model"
)

// measureAccept measures how fast events are accepted while none runs.
func measureAccept(ctx context.Context, b *bench) (err error) {
	s, err := openSystem(ctx, b, "accept")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	const batch, clients = 100, 8
	var serial atomic.Int64
	id := func() string { return fmt.Sprint("e-", serial.Add(1)) }
	single := func(ctx context.Context) error { _, err := s.submit(ctx, keyed(id())); return err }
	many := func(ctx context.Context) error {
		_, err := s.engine.Submit(ctx, submissions(batch, func(int) model.Event { return keyed(id()) }))
		return err
	}
	posted := func(ctx context.Context) error {
		events := make([]wire.Event, batch)
		for i := range events {
			name := id()
			events[i] = wire.Event{Type: "entity", ID: name, Source: "bench", Key: "key-" + name, Payload: map[string]any{"order": name}}
		}
		return call(ctx, s.client, s.url, events, nil)
	}
	fmt.Fprintf(b.out, "events accepted, each with an id and a key of its own, median of %d rounds of %s\n", b.rounds, b.span)
	var lines []line
	var rate, p99 float64
	for _, way := range []struct {
		name             string
		clients, perCall int
		call             func(context.Context) error
	}{
		{"one by one, 256 senders", 256, 1, single},
		{fmt.Sprintf("by %d, %d senders", batch, clients), clients, batch, many},
		{fmt.Sprintf("by %d over HTTP, %d senders", batch, clients), clients, batch, posted},
	} {
		var got []sample
		for range b.rounds {
			one, err := b.acceptRound(ctx, way.clients, way.perCall, way.call)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			got = append(got, one)
		}
		b.note("accepted "+way.name+": events", "a second", collect(got, sample.getRate)...)
		b.note("accepted "+way.name+": p99 at 5,000 a second", "ms", collect(got, sample.p99)...)
		rate, p99 = medianOf(got, sample.getRate), medianOf(got, sample.p99)
		lines = append(lines, line{way.name, got, []string{fmt.Sprintf("%.2f", medianOf(got, sample.p50)), fmt.Sprintf("%.2f", p99)}})
	}
	b.compare("events", lines, "at half of 10,000/s: p50 ms", "p99 ms")
	b.judge("events/s, batched over HTTP", rate, 10_000, true)
	b.judge("p99 ms at half of that", p99, 20, false)
	return nil
}

// acceptRound measures the rate of many senders, and the latency at a fixed rate.
func (b *bench) acceptRound(ctx context.Context, clients, perCall int, call func(context.Context) error) (sample, error) {
	const half = 5000
	if err := b.server.settle(ctx); err != nil {
		return sample{}, err
	}
	var calls atomic.Int64
	limited, cancel := context.WithTimeout(ctx, b.span)
	defer cancel()
	s, err := b.rated(ctx, 0, func() (int, error) {
		g, calling := errgroup.WithContext(ctx)
		for range clients {
			g.Go(func() error {
				for limited.Err() == nil {
					if err := call(calling); err != nil {
						return err
					}
					calls.Add(1)
				}
				return nil
			})
		}
		err := g.Wait()
		return int(calls.Load()) * perCall, err
	})
	if err != nil {
		return s, err
	}
	s.latencies, err = pace(ctx, half/float64(perCall), b.span, func(ctx context.Context, _ int) error { return call(ctx) })
	return s, err
}

// measureBacklog compares the cost of an event with a small and a large backlog.
func measureBacklog(ctx context.Context, b *bench) error {
	const few = 1000
	fmt.Fprintf(b.out, "draining waiting events of a flow with one step that makes no call\n")
	var small []sample
	for range max(b.rounds, 5) {
		s, err := b.drain(ctx, few, 0)
		if err != nil {
			return err
		}
		small = append(small, s)
	}
	big, err := b.drain(ctx, b.backlog, 0)
	if err != nil {
		return err
	}
	beside, err := b.drain(ctx, b.backlog, b.crowd)
	if err != nil {
		return err
	}
	b.compare("events", []line{{fmt.Sprint(few, " wait"), small, nil}, {fmt.Sprint(b.backlog, " wait"), []sample{big}, nil}, {fmt.Sprint("the same beside ", b.crowd, " delayed"), []sample{beside}, nil}})
	b.note("backlog: events", "", float64(b.backlog))
	b.note("backlog: delayed events", "", float64(b.crowd))
	b.note("backlog: time of an event, of a small one", "", medianOf(small, sample.getRate)/big.rate)
	b.note("backlog beside delayed events: processor time, of without", "", beside.getBoth()/big.getBoth())
	b.judge(fmt.Sprintf("time per event with %d waiting, of that with %d", b.backlog, few), medianOf(small, sample.getRate)/big.rate, 1.2,
		false)
	return nil
}

// drain fills the inbox, and then measures until it has only delayed events.
func (b *bench) drain(ctx context.Context, events, delayed int) (_ sample, err error) {
	s, err := openSystem(ctx, b, "backlog")
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var g errgroup.Group
	g.SetLimit(4)
	fill := func(events int, ev model.Event) {
		for left := events; left > 0; left -= 256 {
			n := min(left, 256)
			g.Go(func() error {
				_, err := s.engine.Submit(ctx, submissions(n, func(int) model.Event { return ev }))
				return err
			})
		}
	}
	fill(events, model.Event{Type: "nothing"})
	fill(delayed, model.Event{Type: "nothing", At: time.Now().Add(time.Hour)})
	if err := errors.Join(g.Wait(), b.server.settle(ctx)); err != nil {
		return sample{}, err
	}
	s.ends.expect(events)
	return b.rated(ctx, 0, func() (int, error) {
		s.work()
		return events, waitFor(ctx, s.ends.all)
	})
}
