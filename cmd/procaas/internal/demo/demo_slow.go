package demo

import (
	"context"
	"fmt"
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

	// slowSpan is how old runs may be that prove something.
	slowSpan = 3 * time.Second
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
	slow, err := d.traffic.client.SlowRuns(ctx, slowPipeline, time.Now().Add(-time.Minute), 1)
	if err != nil || len(slow) == 0 {
		return err
	}
	d.traffic.tell("named: $ procaas runs slow %s --since 1m\n        %s", slowPipeline, slowText(&slow[0]))
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
	for {
		if !clock.Pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
		slow, err := d.traffic.client.SlowRuns(ctx, slowPipeline, time.Now().Add(-slowSpan), 1)
		if err != nil {
			return err
		}
		if len(slow) > 0 && slow[0].TookMS <= slow[0].TargetMS {
			d.traffic.tell("mended: $ procaas runs slow %s --since %s\n        %s", slowPipeline, slowSpan, slowText(&slow[0]))
			return nil
		}
	}
}

// slowText describes the slowest run.
func slowText(r *stats.SlowRun) string {
	kept := "missed"
	if r.TookMS <= r.TargetMS {
		kept = "kept"
	}
	milli := func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
	text := fmt.Sprintf("the slowest run took %s, target %s %s", milli(r.TookMS), milli(r.TargetMS), kept)
	if r.Handler != "" {
		text += fmt.Sprintf("; %s took %s of it", r.Handler, milli(r.HandlerMS))
	}
	return text
}
