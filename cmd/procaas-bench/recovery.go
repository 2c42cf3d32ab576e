package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"procaas/engine/api/wire"
)

// A recovery is the result of killing a node.
type recovery struct {
	interrupted float64       // calls that the kill cut off
	resumed     time.Duration // until the service has received all of these again
	ended       time.Duration // until all runs have succeeded
}

// recoveryFlows is the number of flows when the node is killed. A node works on 256 at a time.
const recoveryFlows = 500

// measureRecovery kills a node with calls in flight.
func measureRecovery(ctx context.Context, b *bench) error {
	flows := min(b.flows, recoveryFlows)
	ways := []struct {
		name   string
		second bool
	}{{"the node is started again", false}, {"a second node takes over", true}}
	got := make([][]recovery, len(ways))
	for range b.rounds {
		for i, way := range ways {
			r, err := b.recover(ctx, flows, way.second)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			got[i] = append(got[i], r)
		}
	}
	fmt.Fprintf(b.out, "kill -9 when half of %d flows have begun their call of %s, median of %d rounds\n", flows, slowCall, b.rounds)
	b.table("\tcalls cut off\tmade again after s\tall succeeded after s\t", func(w *tabwriter.Writer) {
		for i, way := range ways {
			fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f\t\n", way.name,
				medianOf(got[i], func(r recovery) float64 { return r.interrupted }),
				medianOf(got[i], func(r recovery) float64 { return r.resumed.Seconds() }),
				medianOf(got[i], func(r recovery) float64 { return r.ended.Seconds() }))
		}
	})
	return nil
}

// recover kills a node. It measures from the start of the next process, or with a second node from the kill.
func (b *bench) recover(ctx context.Context, flows int, second bool) (r recovery, err error) {
	p, err := newBinary(ctx, b, onPostgres("recovery"))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if second {
		if err := p.start(ctx); err != nil {
			return r, err
		}
	}
	b.service.forget()
	ids, lasts, err := p.submitSlow(ctx, flows)
	if err != nil {
		return r, err
	}
	if err := poll(ctx, time.Millisecond, func() (bool, error) { return b.service.slow() >= flows/2, nil }); err != nil {
		return r, err
	}
	if err := p.nodes[0].kill(); err != nil {
		return r, err
	}
	began := time.Now()
	p.nodes = p.nodes[1:]
	if !second {
		if err := p.start(ctx); err != nil {
			return r, err
		}
		began = p.nodes[0].began
	}
	for _, last := range lasts {
		if err := waitFor(ctx, last); err != nil {
			return r, err
		}
	}
	if err := p.durable(ctx, ids); err != nil {
		return r, err
	}
	r.ended = time.Since(began)
	calls, last, err := b.service.resumed()
	r.interrupted, r.resumed = float64(calls), last.Sub(began)
	return r, err
}

// submitSlow posts the events of flows with a slow call in one request. It returns a channel for the last call
// of each.
func (p *binary) submitSlow(ctx context.Context, flows int) (ids []string, lasts []<-chan struct{}, err error) {
	events := make([]wire.Event, flows)
	for i := range events {
		id := fmt.Sprint("slow-", i)
		ids, lasts, events[i] = append(ids, id), append(lasts, p.service.expect(id)), eventOf("slow", id)
	}
	var receipts wire.Receipts
	if err := p.call(ctx, "/v1/events", events, &receipts); err != nil {
		return nil, nil, err
	}
	for i, item := range receipts.Items {
		if item.Error != nil {
			return nil, nil, item.Error
		}
		p.started(ids[i], item.Run)
	}
	return ids, lasts, nil
}
