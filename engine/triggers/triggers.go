package triggers

import (
	"fmt"
	"strings"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// tickID is the format of a firing's event id: the due time with a fixed number of digits, so that
// the greatest id is the latest firing. All nodes make the same id, and the store keeps the first
// event.
const tickID = "2006-01-02T15:04:05.000000000Z"

// maxCatchUp bounds the firings that catch-up: all makes up for at once, because they are in
// memory.
const maxCatchUp = 100_000

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

// Source returns the source of the events of a trigger.
func Source(id string) string { return TriggerSource + id }

// Path returns the path at which operators pause a trigger.
func Path(id string) string { return "triggers/" + id }

// Of returns the trigger of a path, and false for other paths.
func Of(path string) (id string, ok bool) { return strings.CutPrefix(path, Path("")) }

// DueAt returns the due time of a firing from the id of its event. It returns false for an event that an operator fired
// by hand.
func DueAt(id string) (due time.Time, ok bool) {
	due, err := time.Parse(tickID, id)
	return due, err == nil
}

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

// between returns how many due times there are after one time and up to another, and the last of them. It stops at
// maxCatchUp.
func (c *clockwork) between(after, upTo time.Time) (n int, last time.Time) {
	if c.cron == nil {
		every := int64(c.trigger.Every)
		n = int(max(upTo.UnixNano()/every-after.UnixNano()/every, 0))
		return n, time.Unix(0, upTo.UnixNano()/every*every).UTC()
	}
	for t := c.next(after); !t.IsZero() && !t.After(upTo) && n < maxCatchUp; t = c.next(t) {
		n, last = n+1, t
	}
	return n, last
}

// event returns the event of one firing.
func (c *clockwork) event(due time.Time) model.Event {
	return model.Event{
		ID: due.Format(tickID), Source: Source(c.trigger.ID), Type: c.trigger.Event, Time: due,
		Key: c.trigger.Key, Payload: c.payload, Inner: true,
	}
}

// Content returns the part of an event by which an event with the same id is the same: a firing by hand or in a backfill
// has another priority and other labels, and one by hand has the time of the first call.
func Content(ev model.Event) model.Event {
	ev.Priority, ev.Labels = 0, ""
	if _, due := DueAt(ev.ID); !due {
		ev.Time = time.Time{}
	}
	return ev
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
