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

// tickID is the format of a firing's event id: the due time with a fixed number of digits, so that
// the greatest id is the latest firing. All nodes make the same id, and the store keeps the first
// event.
const tickID = "2006-01-02T15:04:05.000000000Z"

// maxCatchUp bounds the firings that catch-up: all makes up for at once, because they are in
// memory.
const maxCatchUp = 100_000

// clockBack is how far in the future the last firing must be to show that the store's clock was set
// back. Otherwise the trigger would be silent until then.
const clockBack = time.Minute

// A clockwork is one trigger with its schedule.
type clockwork struct {
	trigger *tree.Trigger
	payload any
	cron    *cronSchedule // nil for a trigger with every
	last    time.Time     // last due time that was fired or skipped
}

// newClockwork parses a trigger.
func newClockwork(t *tree.Trigger) (*clockwork, error) {
	c := &clockwork{trigger: t}
	c.payload, _ = t.Payload.Literal()
	if t.Cron == "" {
		return c, nil
	}
	zone, err := time.LoadLocation(t.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("trigger %s: time-zone: %w", t.ID, err)
	}
	if c.cron, err = newCronSchedule(t.Cron, zone); err != nil {
		return nil, fmt.Errorf("trigger %s: cron: %w", t.ID, err)
	}
	return c, nil
}

// A stand is the state of a trigger under an earlier definition.
type stand struct {
	schedule string
	last     time.Time
}

// schedule identifies the schedule.
func (c *clockwork) schedule() string {
	return fmt.Sprintf("%s %q %s", c.trigger.Every, c.trigger.Cron, c.trigger.TimeZone)
}

// TriggerSource is the prefix of the sources of triggers' events.
const TriggerSource = model.ReservedSource + "trigger/"

// source returns the source of the trigger's events.
func (c *clockwork) source() string { return TriggerSource + c.trigger.ID }

// next returns the first due time after t. With every, due times are multiples of it since 1970, so
// that all nodes agree.
func (c *clockwork) next(t time.Time) time.Time {
	if c.cron != nil {
		return c.cron.next(t)
	}
	every := int64(c.trigger.Every)
	return time.Unix(0, (t.UnixNano()/every+1)*every).UTC()
}

// due returns the due times up to now to fire, oldest first. Only catch-up: all fires more than the
// latest.
func (c *clockwork) due(now time.Time) []time.Time {
	var due []time.Time
	if c.cron == nil && c.trigger.CatchUp != "all" {
		if t := c.next(now.Add(-c.trigger.Every)); t.After(c.last) {
			due = append(due, t)
		}
		return due
	}
	for t := c.next(c.last); !t.IsZero() && !t.After(now); t = c.next(t) {
		if c.trigger.CatchUp != "all" {
			due = due[:0]
		}
		due = append(due, t)
		if len(due) == maxCatchUp {
			break
		}
	}
	return due
}

// event returns the event of one firing.
func (c *clockwork) event(due time.Time) model.Event {
	return model.Event{
		ID: due.Format(tickID), Source: c.source(), Type: c.trigger.Event, Time: due,
		Key: c.trigger.Key, Payload: c.payload, Inner: true,
	}
}

// Check returns an error if the schedule of a trigger is invalid.
func Check(t *tree.Trigger) error {
	_, err := newClockwork(t)
	return err
}

// Firing returns the first event of a trigger that is due after a moment. Its time is the due time,
// or zero if it is not due for years. The error is that of an invalid schedule.
func Firing(t *tree.Trigger, after time.Time) (model.Event, error) {
	c, err := newClockwork(t)
	if err != nil {
		return model.Event{}, err
	}
	return c.event(c.next(after)), nil
}

// A Firer submits the events of triggers at their times.
type Firer struct {
	Clock    *clock.Clock
	Log      *slog.Logger
	Bundle   func() *tree.Bundle    // returns the current definition
	Reloaded func() <-chan struct{} // returns a channel that is closed when the definition changes; called before Bundle

	// LastEvent returns the id of the last event of a source, or empty.
	LastEvent func(ctx context.Context, source string) (id string, err error)

	// Submit submits events and returns for each why it is refused, or nil. The error is that of
	// the first event that could not be stored. All before it are stored.
	Submit func(ctx context.Context, events []model.Event) (refused []error, err error)
}

// These bound how triggers fire.
const (
	firerPoll  = time.Second // longest sleep, because the store's clock may be set
	firerBatch = 256         // firings to submit at once
)

// wind finds the last firing of a trigger that is new to this node. With catch-up: skip, firings
// that were due while no node ran are dropped. Otherwise they follow the last firing.
func (f *Firer) wind(ctx context.Context, c *clockwork, now time.Time) error {
	c.last = now
	if c.trigger.CatchUp == "skip" || c.trigger.CatchUp == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	id, err := f.LastEvent(ctx, c.source())
	if err != nil {
		return fmt.Errorf("trigger %s: last firing: %w", c.trigger.ID, err)
	}
	if last, err := time.Parse(tickID, id); err == nil {
		c.last = last
	}
	return nil
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
	now := f.Clock.Now()
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
			if err := f.wind(ctx, c, now); err != nil {
				return nil, err
			}
		}
		works = append(works, c)
	}
	return works, nil
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

// fire submits what is due for one trigger. It skips refused firings, which would be refused again.
// It retries a firing that could not be stored, without those before it.
func (f *Firer) fire(ctx context.Context, c *clockwork, now time.Time) error {
	due := c.due(now)
	for len(due) > 0 {
		batch := due[:min(len(due), firerBatch)]
		due = due[len(batch):]
		events := make([]model.Event, len(batch))
		for i, t := range batch {
			events[i] = c.event(t)
		}
		refused, err := f.Submit(ctx, events)
		for i, why := range refused {
			if why != nil {
				f.Log.Warn("event of a trigger is refused", "trigger", c.trigger.ID, "due", batch[i], "error", why)
			}
			c.last = batch[i]
		}
		if err != nil {
			return fmt.Errorf("firing of %s: %w", batch[min(len(refused), len(batch)-1)].Format(time.RFC3339), err)
		}
	}
	return nil
}
