package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/engine/api/wire"
)

// A recovery is the result of killing a node.
type recovery struct {
	interrupted float64       // calls that the kill cut off
	resumed     time.Duration // until the service has received all of these again
	ended       time.Duration // until all runs have succeeded
}

// recoveryFlows is the number of flows when the node is killed.
const recoveryFlows = 500

// A recoveryWay is a way to recover.
type recoveryWay struct {
	name     string
	second   bool   // another node takes over
	pipeline string // of the flows
	known    bool   // the node has made many calls of the service at once before, and all flows are in theirs when it is killed
	on       storeMaker
}

// measureRecovery kills a node with calls in flight.
func measureRecovery(ctx context.Context, b *bench) error {
	flows := min(b.flows, recoveryFlows)
	postgres := onPostgres("recovery")
	ways := []recoveryWay{
		{"one call, the node is started again", false, "slow", false, postgres},
		{"one call, a second node takes over", true, "slow", false, postgres},
		{"three calls, the node is started again", false, "steps", true, postgres},
		{"three calls, a second node takes over", true, "steps", true, postgres},
		{"three calls, the node is started again on SQLite", false, "steps", true, onSQLite},
	}
	err := b.eachRound(ctx, func(ctx context.Context, b *bench) error {
		for _, way := range ways {
			r, err := b.recover(ctx, flows, way)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			b.note(way.name+": calls cut off", "calls", r.interrupted)
			b.note(way.name+": made again", "s", r.resumed.Seconds())
			b.note(way.name+": all succeeded", "s", r.ended.Seconds())
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "kill -9 when half of %d flows have begun their call of %s, or all their first of three; median of %d rounds\n",
		flows, slowCall, b.rounds)
	for _, way := range ways {
		fmt.Fprintln(b.out, way.name)
		b.report(way.name + ": ")
	}
	return nil
}

// recover kills a node. It measures from the start of the next process, or with a second node from the kill.
func (b *bench) recover(ctx context.Context, flows int, way recoveryWay) (r recovery, err error) {
	p, err := newBinary(ctx, b, way.on)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	begun := flows / 2
	if way.known {
		begun = flows
		if err := p.slowFlows(ctx, way.pipeline, flows); err != nil {
			return r, err
		}
	}
	if way.second {
		if err := p.start(ctx); err != nil {
			return r, err
		}
	}
	b.service.forget()
	ids, lasts, err := p.submitSlow(ctx, way.pipeline, flows)
	if err != nil {
		return r, err
	}
	if err := poll(ctx, time.Millisecond, func() (bool, error) { return b.service.slow() >= begun, nil }); err != nil {
		return r, err
	}
	if err := p.nodes[0].kill(); err != nil {
		return r, err
	}
	began := time.Now()
	p.nodes = p.nodes[1:]
	if !way.second {
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

// slowFlows runs flows with slow calls to their ends.
func (p *binary) slowFlows(ctx context.Context, pipeline string, flows int) error {
	ids, lasts, err := p.submitSlow(ctx, pipeline, flows)
	for _, last := range lasts {
		if err == nil {
			err = waitFor(ctx, last)
		}
	}
	if err != nil {
		return err
	}
	return p.durable(ctx, ids)
}

// submitSlow posts the events of flows with slow calls in one request. It returns a channel for the last call
// of each.
func (p *binary) submitSlow(ctx context.Context, pipeline string, flows int) (ids []string, lasts []<-chan struct{}, err error) {
	events := make([]wire.Event, flows)
	for i := range events {
		id := fmt.Sprint("slow-", i)
		ids, lasts, events[i] = append(ids, id), append(lasts, p.service.expect(id)), eventOf(pipeline, id)
	}
	var receipts wire.Receipts
	if err := p.call(ctx, "/v1/events", events, &receipts); err != nil {
		return nil, nil, err
	}
	for i, item := range receipts.Items {
		if item.Error != nil {
			return nil, nil, item.Error
		}
		p.started(ids[i], item.Run, 0)
	}
	return ids, lasts, nil
}
