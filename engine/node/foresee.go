package node

import (
	"log/slog"
	"runtime/debug"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file decides runs before their events are stored. A run that only computes depends on nothing but its event, and nobody can see it
// before its end. So the store gets its end together with its event: one row of the history, instead of a row that waits and is
// moved there. Such a run takes no room of the node, and waits for none.

const (
	// foreseeFor is how long a transaction of events waits at most for the next run to be decided. The others begin as usual.
	foreseeFor = 10 * time.Millisecond

	foreseenEvent = 16 << 10 // bytes of a payload, at most: a run with a larger one may compute for long
)

// A foresight has the runs that were decided before a transaction of events.
type foresight struct {
	n    *node
	jobs []*job // one for each event; nil for a run that was not decided
}

// Foresee implements [intake.Room].
func (d *Driver) Foresee(runs []model.Intake) intake.Foresight {
	n := d.node.Load()
	if n == nil || n.ctx.Err() != nil || n.isDraining() || d.Memory.Short() {
		return nil
	}
	if d.Library.Trial() != nil || d.Library.Shadow() != nil {
		return nil
	}
	def := d.Library.Present()
	first := 0
	for first < len(runs) && !n.isInstant(def, &runs[first]) {
		first++
	}
	if first == len(runs) {
		return nil
	}
	began := time.Now()
	if !n.mayCompute(foreseeFor) {
		return nil
	}
	defer func() { <-n.steppers }()
	f := &foresight{n: n, jobs: make([]*job, len(runs))}
	for i := first; i < len(runs) && time.Since(began) < foreseeFor; i++ {
		in := &runs[i]
		if !n.isInstant(def, in) {
			continue
		}
		j := newJob(n, &store.Claimed{
			ID: in.ID, Event: in.Event, Flow: in.Flow, Key: in.Key, Accepted: d.Clock.Now(), Pipeline: in.Pipeline, Bundle: in.Bundle,
		})
		j.def = def
		end, ok := j.decide()
		if !ok {
			j.forget()
			continue
		}
		in.End = &model.Ending{Change: end, Began: j.run.Began()}
		f.jobs[i] = j
	}
	return f
}

// isInstant reports whether a run of the event may end as soon as it begins.
func (n *node) isInstant(def *definitions.Definition, in *model.Intake) bool {
	ev := &in.Event
	return def.Instant[ev.Type] && in.Bundle == def.Bundle.Hash && !in.Ordered && ev.At.IsZero() && !ev.Inner && ev.Rerun == nil &&
		!n.records(in.ID) && datum.Size(ev.Payload) <= foreseenEvent
}

// mayCompute waits for the right to compute, as long as that. The caller gives it back.
func (n *node) mayCompute(within time.Duration) bool {
	select {
	case n.steppers <- struct{}{}:
		return true
	default: // other runs compute on all processors
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case n.steppers <- struct{}{}:
		return true
	case <-limit.C:
		return false
	}
}

// records reports whether a run is recorded for replay.
func (n *node) records(run string) bool { return 100*model.Chance(run, "recording") < n.d.Record }

// decide lets the core run to the end. A run that does anything else is not decided here: ok is false, and nothing has happened. So is one
// that panics, which then does it again where it fails.
func (j *job) decide() (end model.Change, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
			j.at("").Debug("run panicked before its event was stored", "panic", p, slog.String("stack", string(debug.Stack())))
		}
	}()
	c := j.claimed
	plan, _, err := j.def.Choose(definitions.Arrival{Event: c.Event, Flow: c.Flow, Key: c.Key, Configs: j.n.d.Settings.ValuesFor(j.def)})
	if err != nil || plan == nil {
		return end, false
	}
	start, err := j.startValues()
	if err != nil {
		return end, false
	}
	j.share(plan.Pipeline)
	j.run = core.Begin(plan, start)
	if tasks := j.run.Ready(j.live()); len(tasks) > 0 || j.run.Status() != model.Succeeded {
		return end, false
	}
	end = j.run.Change()
	end.Emit = j.intakes(j.run.TakeEmits())
	end.Flow, end.Key, end.Alone = c.Flow, c.Key, true
	return end, end.IsPlainEnd()
}

// Node implements [intake.Foresight].
func (f *foresight) Node() int64 { return f.n.number }

// Take implements [intake.Foresight].
func (f *foresight) Take(runs []model.Intake, results []store.Accepted) {
	for i, j := range f.jobs {
		if j == nil {
			continue
		}
		if i < len(results) && results[i].Ended {
			j.count()
			j.saved(runs[i].End.Change)
		}
		j.forget()
	}
}

// forget lets go of a run that no goroutine drives.
func (j *job) forget() {
	j.letGo()
	j.pass.Close(j.n.d.Clock.Now())
	j.stopCalls()
	j.mem.Close()
}
