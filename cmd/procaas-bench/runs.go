package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/api/wire"
)

// measureRuns measures runs of one set that makes no call, from the POST to the durable end, on the built binary.
func measureRuns(ctx context.Context, b *bench) error {
	ways := []struct {
		name                   string
		senders, batch, events int
	}{
		{"single", 64, 1, 4 * b.flows},
		{"by 1,000", 4, 1000, 10 * b.flows},
	}
	const prefix = "runs of one set, "
	err := b.eachRound(ctx, func(ctx context.Context, b *bench) error {
		for _, way := range ways {
			s, err := b.passRuns(ctx, way.senders, way.batch, way.events)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			b.note(prefix+way.name+": runs", "a second", s.rate)
			b.note(prefix+way.name+": program", "µs", micros(s.own))
			b.note(prefix+way.name+": PostgreSQL", "µs", micros(s.server))
			b.note(prefix+way.name+": log", "B", s.log)
		}
		return nil
	})
	fmt.Fprintf(b.out, "%sposted to the built binary, until all have ended, median of %d rounds\n", prefix, b.rounds)
	b.report(prefix)
	return err
}

// passRuns posts events in batches, and waits until all runs have ended.
func (b *bench) passRuns(ctx context.Context, senders, batch, events int) (_ sample, err error) {
	p, err := newBinary(ctx, b, onPostgres("runs"))
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.passBatches(ctx, senders, batch, events/4); err != nil { // to warm up
		return sample{}, err
	}
	if err := b.server.settle(ctx); err != nil {
		return sample{}, err
	}
	return b.rated(ctx, p.pid(), func() (int, error) { return events, p.passBatches(ctx, senders, batch, events) })
}

func (p *binary) passBatches(ctx context.Context, senders, batch, events int) error {
	g, sending := errgroup.WithContext(ctx)
	var sent atomic.Int64
	for range senders {
		g.Go(func() error {
			for {
				last := int(sent.Add(int64(batch)))
				some := min(batch, events-last+batch)
				if some <= 0 {
					return nil
				}
				if err := p.postNothing(sending, some); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return poll(ctx, 5*time.Millisecond, func() (bool, error) {
		var live wire.Page[struct{}]
		err := p.call(ctx, "/v1/runs?in_flight=true&limit=1", nil, &live)
		return len(live.Items) == 0, err
	})
}

// postNothing posts events whose runs make no call.
func (p *binary) postNothing(ctx context.Context, events int) error {
	if events == 1 {
		return p.call(ctx, "/v1/events", eventOf("nothing", "one"), nil)
	}
	batch := make([]wire.Event, events)
	for i := range batch {
		batch[i] = eventOf("nothing", "one")
	}
	var receipts wire.Receipts
	if err := p.call(ctx, "/v1/events", batch, &receipts); err != nil {
		return err
	}
	for _, item := range receipts.Items {
		if item.Error != nil {
			return item.Error
		}
	}
	return nil
}
