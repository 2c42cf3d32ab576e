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

// tickID is the form of a firing's event id: the due time, in digits of a fixed
// number, so that the greatest id is the latest firing. All nodes make the same
// one, and the store keeps the first.
const tickID = "2006-01-02T15:04:05.000000000Z"

// maxCatchUp bounds the firings of one trigger that catch-up: all makes good in one go:
// they are in memory meanwhile.
const maxCatchUp = 100_000

// clockBack is how far in the future a firing lies that the store's clock, set back since,
// cannot have meant. Then a trigger would be silent until the clock is there again.
const clockBack = time.Minute

// A clockwork is one trigger with its schedule.
type clockwork struct {
	trigger *tree.Trigger
	payload any
	cron    *cronSchedule // nil for every
	last    time.Time     // the due time that was fired, or passed over, last
}

// newClockwork reads a trigger.
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

// A stand is where a trigger stood under an earlier definition.
type stand struct {
	schedule string
	last     time.Time
}

// schedule tells schedules apart.
func (c *clockwork) schedule() string {
	return fmt.Sprintf("%s %q %s", c.trigger.Every, c.trigger.Cron, c.trigger.TimeZone)
}

// TriggerSource begins the sources of the events of triggers.
const TriggerSource = model.ReservedSource + "trigger/"

// source is the source of the trigger's events.
func (c *clockwork) source() string { return TriggerSource + c.trigger.ID }

// next returns the first due time after t. Those of every are multiples of it since
// 1970, so that all nodes agree on them.
func (c *clockwork) next(t time.Time) time.Time {
	if c.cron != nil {
		return c.cron.next(t)
	}
	every := int64(c.trigger.Every)
	return time.Unix(0, (t.UnixNano()/every+1)*every).UTC()
}

// due returns the due times up to now that are to be fired, oldest first. Of
// several, only catch-up: all fires more than the latest.
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
		if due = append(due, t); len(due) == maxCatchUp {
			break
		}
	}
	return due
}

// event is one firing.
func (c *clockwork) event(due time.Time) model.Event {
	return model.Event{
		ID: due.Format(tickID), Source: c.source(), Type: c.trigger.Event, Time: due,
		Key: c.trigger.Key, Payload: c.payload, Inner: true,
	}
}

// Check refuses a trigger whose times cannot be told.
func Check(t *tree.Trigger) error {
	_, err := newClockwork(t)
	return err
}

// Firing returns the first event of a trigger that is due after a moment. Its time is when; zero for one that is not due
// in years. The error is of a trigger whose times cannot be told.
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
	Bundle   func() *tree.Bundle    // the present definition
	Reloaded func() <-chan struct{} // closed when there is another one; asked for before Bundle

	// LastEvent returns the id of the last event of a source; empty when there is none.
	LastEvent func(ctx context.Context, source string) (id string, err error)

	// Submit hands events in and tells for each why it is refused for what it is; nil for one
	// that is stored. The error is of the first that could not be stored, before which all
	// others are.
	Submit func(ctx context.Context, events []model.Event) (refused []error, err error)
}

// How triggers are fired.
const (
	firerPoll  = time.Second // the longest sleep: the store's clock may be set meanwhile
	firerBatch = 256         // firings that are handed in at once
)

// wind finds out where a trigger stands that this node has not fired before.
// What was due while no node ran is dropped by catch-up: skip, and found by the
// others from the last firing.
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
	// Before the store's clock is known nothing is due: the node's own may be hours off.
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

// windAll makes the triggers of a definition ready. One whose schedule has changed begins
// now: what would have been due by the new one before that was never meant to fire.
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

// tick fires triggers until ctx ends or there is another definition.
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
				c.last = now // what fires twice by this has the same id, and counts once
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

// fire submits what is due of one trigger. A firing that is refused for what it is will be
// refused again and is passed over; one that could not be stored is tried again, and those
// before it are not.
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
