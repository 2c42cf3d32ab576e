package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/stats"
)

// slowService is an incident in which nothing fails. The demo does what an operator would, by the API, and prints the commands.
const slowService = "slow-service"

const (
	slowPipeline = "new-order-created"
	slowBound    = "300ms"

	// slowProof is how many orders in a row must keep their target.
	slowProof = 10
)

// playSlowService makes a service slow after a while, bounds what it costs, and waits for the proof.
func (d *taxiDemo) playSlowService(ctx context.Context) error {
	if !clock.Pause(ctx, d.incidentAfter) {
		return nil
	}
	if err := d.stubs.SetIncident(slowService, true); err != nil {
		return err
	}
	d.traffic.setIncident(slowService, true)
	began := time.Now()
	err := d.boundSlowService(ctx)
	if err == nil && clock.Pause(ctx, d.incidentFor-time.Since(began)) {
		d.traffic.setIncident(slowService, false)
		err = d.stubs.SetIncident(slowService, false)
	}
	if ctx.Err() != nil {
		return nil // the demo ends
	}
	return err
}

// boundSlowService finds the slow handler and bounds it.
func (d *taxiDemo) boundSlowService(ctx context.Context) error {
	var late *stats.LateRuns
	for late == nil {
		if !clock.Pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
		for _, l := range d.node.Engine().Late() {
			if l.Path == slowPipeline && l.Handler != "" {
				late = &l
			}
		}
	}
	d.traffic.tell("seen: $ procaas top %s\n        %s", slowPipeline, late.Text())
	slow, err := d.slowestRun(ctx)
	if err != nil {
		return err
	}
	d.traffic.tell("named: $ procaas runs slow %s --since 1m\n        %s", slowPipeline, slowText(&slow))
	path := late.Handler[:strings.LastIndexByte(late.Handler, '/')] // all handlers of the stage call the service
	change := wire.ControlChange{Deadline: slowBound, DeadlineUntil: time.Now().Add(time.Hour), Reason: "push is slow"}
	effect, err := d.traffic.client.ControlEffect(ctx, path, change)
	if err != nil {
		return err
	}
	d.traffic.tell("cost: $ procaas deadline %s %s --dry-run\n        about %d of %d calls took longer", path, slowBound, effect.Slower, effect.Ended)
	if _, err := d.traffic.client.SetControl(ctx, path, change, 0); err != nil {
		return err
	}
	d.traffic.tell("bounded: $ procaas deadline %s %s --for 1h --reason \"push is slow\"", path, slowBound)
	return d.proveMended(ctx)
}

// slowestRun returns the slowest run of the last minute. It waits for one: runs may be late that have not ended.
func (d *taxiDemo) slowestRun(ctx context.Context) (stats.SlowRun, error) {
	for {
		slow, err := d.traffic.client.SlowRuns(ctx, slowPipeline, time.Now().Add(-time.Minute), 1)
		if err != nil {
			return stats.SlowRun{}, err
		}
		if len(slow) > 0 {
			return slow[0], nil
		}
		if !clock.Pause(ctx, 200*time.Millisecond) {
			return stats.SlowRun{}, ctx.Err()
		}
	}
}

// proveMended waits until enough orders in a row have kept their target.
func (d *taxiDemo) proveMended(ctx context.Context) error {
	var ended, late int64
	for {
		if !clock.Pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
		all, err := d.traffic.client.Durations(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(v stats.DurationView) bool { return v.Path == slowPipeline })
		if i < 0 || all[i].Target == nil {
			continue
		}
		now := all[i].Accepted.Hour
		switch {
		case ended == 0 || now.Late > late:
			ended, late = now.Ended, now.Late // calls in flight keep their time
		case now.Ended-ended >= slowProof:
			d.traffic.tell("mended: $ procaas top %s\n        the last %d orders kept the target of %s", slowPipeline, now.Ended-ended, all[i].Target.Text())
			return nil
		}
	}
}

// slowText describes the slowest run.
func slowText(r *stats.SlowRun) string {
	milli := func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
	text := fmt.Sprintf("the slowest run took %s, target %s", milli(r.TookMS), milli(r.TargetMS))
	if r.Handler != "" {
		text += fmt.Sprintf("; %s took %s of it", r.Handler, milli(r.HandlerMS))
	}
	return text
}
