package model

import "time"

// A Place says where a run is, finer than its status. The first migration of each store
// explains them.
type Place string

// The places.
const (
	PlaceReady     Place = "ready"     // to be claimed
	PlaceRunning   Place = "running"   // a node owns it
	PlaceParked    Place = "parked"    // until its time, or what it waits for
	PlaceHeld      Place = "held"      // until an operator decides; the later runs of its key wait
	PlaceBlocked   Place = "blocked"   // failed, and the later runs of its key wait
	PlaceQueued    Place = "queued"    // behind another run of its key
	PlaceScheduled Place = "scheduled" // until its time; it has no place in the order of its key yet
	PlaceDeferred  Place = "deferred"  // until the state of its key is another
	PlaceFailed    Place = "failed"    // nobody waits for it
	PlaceAway      Place = "away"      // goes to another cell, or comes from one
)

// Status is what people see of a place. The history has statuses in the column of places,
// which stay what they are.
func (p Place) Status() Status {
	switch p {
	case PlaceReady, PlaceQueued, PlaceScheduled, PlaceDeferred:
		return Waiting
	case PlaceHeld:
		return Parked
	case PlaceBlocked:
		return Failed
	default:
		return Status(p)
	}
}

// PlaceAfter returns where a run is after a change that takes it from its node, without an end
// for good. The run has a place in the order of a key when it is ordered, and keeps that when
// it blocks; order is what an operator wants of it.
func (c *Change) PlaceAfter(ordered, block bool, order string, now time.Time) Place {
	_, undo := c.Next(order)
	switch {
	case undo:
		return PlaceReady // whoever has it next undoes it
	case c.Status == Failed && block && ordered:
		return PlaceBlocked
	case c.Status == Failed:
		return PlaceFailed
	case c.Status == Parked && c.Due.IsZero():
		return PlaceHeld
	case c.Status == Parked && c.Due.After(now):
		return PlaceParked
	case c.Status == Waiting && c.Defer && ordered:
		return PlaceDeferred
	default:
		return PlaceReady
	}
}
