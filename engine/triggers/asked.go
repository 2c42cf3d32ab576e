package triggers

import (
	"fmt"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// These say how an operator has fired an event. They are the values of [FiredBy].
const (
	ByHand     = "run-now"
	ByBackfill = "backfill"
)

// FiredBy is the label of events that operators fired.
const FiredBy = "fired-by"

// handID is the prefix of the ids of events that operators fired by hand. It comes before all digits, so that the
// greatest id of a trigger stays that of a due time.
const handID = "-run-now-"

// backfillPriority makes the runs of a backfill wait for those of other events.
const backfillPriority = -1

// MaxHandID is how long the id of a firing by hand may be, in bytes.
const MaxHandID = 150

// ByHandAt returns the event of a firing by hand. Two with the same id are the same.
func ByHandAt(t *tree.Trigger, id string, now time.Time) (model.Event, error) {
	c, err := newClockwork(t)
	if err != nil {
		return model.Event{}, err
	}
	ev := c.event(now)
	ev.ID, ev.Labels = handID+id, FiredBy+"="+ByHand
	return ev, nil
}

// BackfillAt returns the event of a firing at a due time, fired later. It has the id of the firing at that time.
func BackfillAt(t *tree.Trigger, due time.Time) (model.Event, error) {
	c, err := newClockwork(t)
	if err != nil {
		return model.Event{}, err
	}
	ev := c.event(due)
	ev.Labels, ev.Priority = FiredBy+"="+ByBackfill, backfillPriority
	return ev, nil
}

// A WindowError says that a window has more due times than allowed.
type WindowError struct {
	Most int
	At   time.Time // the first one that is too many
}

// Error implements error.
func (e *WindowError) Error() string {
	return fmt.Sprintf("the window has more than %d due times", e.Most)
}

// Window lists the due times of a trigger from one time on and before another. The error is a [*WindowError] if there
// are more than most.
func Window(t *tree.Trigger, from, to time.Time, most int) (due []time.Time, err error) {
	c, err := newClockwork(t)
	if err != nil {
		return nil, err
	}
	for at := c.next(from.Add(-1)); !at.IsZero() && at.Before(to); at = c.next(at) {
		if len(due) == most {
			return nil, &WindowError{most, at}
		}
		due = append(due, at)
	}
	return due, nil
}
