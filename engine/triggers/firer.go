package triggers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/model"
)

// clockBack is how far in the future the last firing must be to show that the store's clock was set
// back. Otherwise the trigger would be silent until then.
const clockBack = time.Minute

// A Firer submits the events of triggers at their times.
type Firer struct {
	Clock    *clock.Clock
	Log      *slog.Logger
	Bundle   func() *tree.Bundle    // returns the current definition
	Reloaded func() <-chan struct{} // returns a channel that is closed when the definition changes; called before Bundle
	Events   Events                 // accepted events
	Runs     Runs                   // looked at and cancelled for overlap
	Marks    Marks

	// Holds are the paths that operators hold.
	Holds Holds

	// Submit submits events and returns what became of each. The error is that of the first event that could not be
	// stored. All before it are stored.
	Submit func(ctx context.Context, events []model.Event) ([]Result, error)

	// Count counts due times of a trigger by what became of them: [Fired], [Refused] or a reason why it did not fire.
	Count func(trigger, outcome string, times int)
}

// These are the outcomes of due times at which a trigger fired.
const (
	Fired   = "fired"
	Refused = "refused" // no pipeline takes the event
)

// Holds are the paths that operators hold.
type Holds interface {
	// Refresh reads them anew, if they have changed.
	Refresh(ctx context.Context) error

	// HeldAt reports whether operators hold a path, and why.
	HeldAt(path string) (reason string, held bool)

	// HeldUntil returns when the last hold of a path has ended or will end. It is zero if there is none, and if it does not end.
	HeldUntil(path string) time.Time
}

// A Result is what became of a submitted event.
type Result struct {
	Run       string // the run of the event, also of a duplicate; empty if the event is refused
	Duplicate bool   // the event was accepted before
	Refused   error  // nil if the event is stored
}

// Events are the accepted events.
type Events interface {
	// LastEvent returns the id of the last event of a source, or empty.
	LastEvent(ctx context.Context, source string) (id string, err error)

	// EventRun returns the run of an event, or empty if it is not known.
	EventRun(ctx context.Context, source, id string) (run string, err error)
}

// These bound how triggers fire.
const (
	firerPoll  = time.Second // longest sleep, because the store's clock may be set
	firerBatch = 256         // firings to submit at once

	// late is how long after its due time a firing counts as missed when a node starts. Until then another node may
	// still be about to fire.
	late = 2 * firerPoll
)

// wind finds the last firing of a trigger that is new to this node. With catch-up: skip, firings
// that were due while no node ran are dropped. Otherwise they follow the last firing.
func (f *Firer) wind(ctx context.Context, c *clockwork, mark Mark, now time.Time) error {
	c.last = now
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	id, err := f.Events.LastEvent(ctx, Source(c.trigger.ID))
	if err != nil {
		return fmt.Errorf("trigger %s: last firing: %w", c.trigger.ID, err)
	}
	last, fired := DueAt(id)
	if mark.Passed.After(last) {
		last, fired = mark.Passed, true
	}
	switch {
	case !fired:
		return nil
	case c.trigger.CatchUp == "skip" || c.trigger.CatchUp == "":
		return f.note(ctx, c, last, now.Add(-late), Missed)
	}
	// What was due in a pause that ended while no node ran is not made up for, as if one had run.
	if end := f.Holds.HeldUntil(Path(c.trigger.ID)); end.After(last) && end.Before(now) {
		if err := f.note(ctx, c, last, end, Paused); err != nil {
			return err
		}
		last = end
	}
	c.last = last
	return nil
}

// note notes the due times after the last one, up to another time, at which nobody has fired.
func (f *Firer) note(ctx context.Context, c *clockwork, last, upTo time.Time, reason string) error {
	times, passed := c.between(last, upTo)
	if times == 0 {
		return nil
	}
	news, err := f.Marks.Change(ctx, c.trigger.ID, func(m *Mark) bool { return m.pass(passed, reason, "", times) })
	if news {
		f.Count(c.trigger.ID, reason, times)
	}
	return err
}

// Run submits the events of triggers at their times, until ctx ends.
func (f *Firer) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-f.Clock.Known:
	}
	stands := map[string]stand{} // by trigger
	// Nothing is due before the store's clock is known, because the node's own may be hours off.
	for ctx.Err() == nil {
		b := f.Bundle()
		works, err := f.windAll(ctx, b, stands)
		if err != nil {
			f.Log.Warn("triggers cannot start, trying again", "error", err)
			clock.Pause(ctx, firerPoll)
			continue
		}
		f.tick(ctx, b, works)
		for _, c := range works {
			stands[c.trigger.ID] = stand{c.schedule(), c.last}
		}
	}
}

// windAll prepares the triggers of a definition. If a schedule has changed, it begins now, because
// its earlier due times were never meant to fire.
func (f *Firer) windAll(ctx context.Context, b *tree.Bundle, stands map[string]stand) ([]*clockwork, error) {
	if err := f.Holds.Refresh(ctx); err != nil {
		return nil, err
	}
	now := f.Clock.Now()
	var marks map[string]Mark // read for the first trigger that is new
	var works []*clockwork
	for _, t := range b.Triggers {
		c, err := newClockwork(t)
		if err != nil {
			return nil, err
		}
		switch was, ok := stands[t.ID]; {
		case ok && was.schedule == c.schedule():
			c.last = was.last
		case ok:
			c.last = now
		default:
			if marks == nil {
				if marks, err = f.allMarks(ctx); err != nil {
					return nil, err
				}
			}
			if err := f.wind(ctx, c, marks[t.ID], now); err != nil {
				return nil, err
			}
		}
		works = append(works, c)
	}
	return works, nil
}

func (f *Firer) allMarks(ctx context.Context) (map[string]Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	return f.Marks.All(ctx)
}

// tick fires triggers until ctx ends or the definition changes.
func (f *Firer) tick(ctx context.Context, b *tree.Bundle, works []*clockwork) {
	for {
		again := f.Reloaded()
		if f.Bundle() != b {
			return
		}
		now := f.Clock.Now()
		sleep := firerPoll
		for _, c := range works {
			if c.last.Sub(now) > clockBack {
				c.last = now // a repeated firing has the same id, and counts once
			}
			if err := f.fire(ctx, c, now); err != nil && ctx.Err() == nil {
				f.Log.Warn("trigger cannot fire, trying again", "trigger", c.trigger.ID, "error", err)
				sleep = min(sleep, clock.MaxBackoff)
				continue
			}
			if next := c.next(c.last); !next.IsZero() {
				sleep = min(sleep, max(next.Sub(f.Clock.Now()), 0))
			}
		}
		t := time.NewTimer(sleep)
		if len(works) == 0 {
			t.Stop()
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// fire submits what is due for one trigger, unless operators have paused it or its overlap policy
// forbids it. It skips refused firings, which would be refused again. It retries a firing that could
// not be stored, without those before it.
func (f *Firer) fire(ctx context.Context, c *clockwork, now time.Time) error {
	due := c.due(now)
	if len(due) == 0 {
		return nil
	}
	if _, held := f.Holds.HeldAt(Path(c.trigger.ID)); held {
		return f.pass(ctx, c, due, Paused, "")
	}
	batch := firerBatch
	limits := c.trigger.Overlap != OverlapAllow && c.trigger.Overlap != "" // as in bundles that were not read from files
	if limits {
		batch = 1 // each depends on the one before
	}
	for len(due) > 0 {
		some := due[:min(len(due), batch)]
		due = due[len(some):]
		if limits {
			mayFire, err := f.overlap(ctx, c, some[0])
			if err != nil {
				return err
			}
			if !mayFire {
				continue
			}
		}
		if err := f.submit(ctx, c, some); err != nil {
			return err
		}
	}
	return nil
}

// submit submits the events of due times.
func (f *Firer) submit(ctx context.Context, c *clockwork, due []time.Time) error {
	events := make([]model.Event, len(due))
	for i, t := range due {
		events[i] = c.event(t)
	}
	results, err := f.Submit(ctx, events)
	for i, r := range results {
		switch {
		case r.Refused != nil:
			f.Log.Warn("event of a trigger is refused", "trigger", c.trigger.ID, "due", due[i], "error", r.Refused)
			f.Count(c.trigger.ID, Refused, 1)
		case !r.Duplicate:
			f.Count(c.trigger.ID, Fired, 1)
		}
		c.last = due[i]
	}
	if err != nil {
		return fmt.Errorf("firing of %s: %w", due[min(len(results), len(due)-1)].Format(time.RFC3339), err)
	}
	return nil
}

// pass notes that a trigger does not fire at its due times.
func (f *Firer) pass(ctx context.Context, c *clockwork, due []time.Time, reason, run string) error {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	last := due[len(due)-1]
	news, err := f.Marks.Change(ctx, c.trigger.ID, func(m *Mark) bool { return m.pass(last, reason, run, len(due)) })
	if err != nil {
		return err
	}
	if news {
		f.Count(c.trigger.ID, reason, len(due))
	}
	c.last = last
	return nil
}
