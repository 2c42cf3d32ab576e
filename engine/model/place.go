package model

import "time"

// A Place says where a run is, in more detail than its status. The first migration of each store
// explains the places.
type Place string

// These are the places.
const (
	PlaceReady     Place = "ready"     // to be claimed
	PlaceRunning   Place = "running"   // a node owns it
	PlaceParked    Place = "parked"    // until its time, or until its cause ends
	PlaceHeld      Place = "held"      // until an operator decides; the later runs of its key wait
	PlaceBlocked   Place = "blocked"   // failed, and the later runs of its key wait
	PlaceQueued    Place = "queued"    // behind another run of its key
	PlaceScheduled Place = "scheduled" // until its time; it is not yet in the order of its key
	PlaceDeferred  Place = "deferred"  // until the state of its key changes
	PlaceFailed    Place = "failed"    // no run waits for it
	PlaceAway      Place = "away"      // moving to or from another cell
)

// Status is the status that people see for a place. The history has statuses in the column of
// places, which it returns unchanged.
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

// PlaceAfter returns the place of a run after a change that releases it without ending it for good.
// An ordered run is in the order of a key. It keeps its place there if it blocks. order is what an
// operator has ordered for it.
func (c *Change) PlaceAfter(ordered, block bool, order string, now time.Time) Place {
	_, undo := c.Next(order)
	switch {
	case undo:
		return PlaceReady // its next node undoes it
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
	case c.Status == Waiting && c.ErrorClass == ClassKept && c.Due.After(now):
		return PlaceScheduled
	default:
		return PlaceReady
	}
}
