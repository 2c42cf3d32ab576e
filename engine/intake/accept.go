package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/engine/triggers"
	"procaas/engine/writes"
)

// An Acceptor accepts events.
type Acceptor struct {
	Parts
	accepts  writes.Batcher[model.Intake, accepted]
	shedLast atomic.Int64 // when events were last refused for overload; Unix nanoseconds, 0 for never
}

// Parts are the parts that an [Acceptor] uses.
type Parts struct {
	Inbox   store.Inbox
	Runs    RunReader
	Library *definitions.Library
	Room    Room
	Turns   *Turns
	Now     func() time.Time // by the store's clock
	Lost    func() error     // returns why nothing may be written to the store, or nil
	Writes  *writes.Health
	Metrics *stats.Metrics
	Stats   *stats.Stats
}

// A Room is the node's room for runs that begin as soon as their events are stored.
type Room interface {
	// Foresee decides runs that end as soon as they begin, and sets [model.Intake].End of them. They need no room. The result is nil
	// if there are none. Otherwise the caller must call Take of it, after the events were stored or not.
	Foresee(runs []model.Intake) Foresight

	// Reserve reserves room for up to the given number of runs. If there is not room for all, it
	// also reserves kept places for as many runs as low returns. low gets the number of runs that
	// have room, and the node's share of the runs. The caller must call Take of the holder.
	Reserve(runs int, low func(room, share int) int) Reservation
}

// A Reservation is room for runs.
type Reservation struct {
	Runs int   // for how many runs there is room; 0 if the node accepts none
	Kept int   // for how many more there is a kept place
	Node int64 // number of the node; 0 if it accepts none

	Holder Holder // who has reserved the room; nil for nobody
}

// A Holder has reserved room for runs.
type Holder interface {
	// Take starts the runs that the store assigned to the node, and frees the rest of the room.
	Take(r Reservation, results []store.Accepted, err error)
}

// A Foresight has runs that were decided before their events are stored.
type Foresight interface {
	// Node is the number of the node that has decided them.
	Node() int64

	// Take tells of the runs that the store has with their ends, and forgets all. It gets the same runs, and the results of the store,
	// none if the events were not stored.
	Take(runs []model.Intake, results []store.Accepted)
}

// NewAcceptor makes an Acceptor.
func NewAcceptor(p Parts) *Acceptor {
	a := &Acceptor{Parts: p}
	a.accepts.Shared, a.accepts.Most, a.accepts.Lanes = transaction{a}, writes.MaxBatch, 2
	p.Writes.Tell(&a.accepts)
	a.accepts.Dropped = func(events int) { a.shed(events, stats.ShedLeft) }
	return a
}

// Submit accepts events from outside, which may not use a source that begins with procaas/. When it
// returns, events without an error are durable. Each event is accepted or refused on its own. The
// error is for all events. With an [*OverloadError] none is stored. With any other error the store
// could not be reached, and it is unknown whether they were stored. Then it is safe to submit
// events with an id again.
func (a *Acceptor) Submit(ctx context.Context, events []Submission) ([]Submitted, error) {
	return a.submit(ctx, events, true)
}

// SubmitOwn is Submit, also for the engine's own events.
func (a *Acceptor) SubmitOwn(ctx context.Context, events []Submission) ([]Submitted, error) {
	return a.submit(ctx, events, false)
}

// fromOutside makes a submission one from outside, which does not say that its event is the engine's own.
func (s *Submission) fromOutside() {
	s.Event.Inner, s.Event.Rerun = false, nil
	if s.Queue != "" {
		s.Event.Source, s.Event.Inner = model.TaskSource(s.Queue), true
	}
}

// submit accepts events, from outside or as they are.
func (a *Acceptor) submit(ctx context.Context, events []Submission, outside bool) ([]Submitted, error) {
	d, now := a.Library.Present(), a.Now()
	out := make([]Submitted, len(events))
	runs := make([]model.Intake, 0, len(events))
	places := make([]int, 0, len(events))
	for i, s := range events {
		if outside {
			s.fromOutside()
		}
		in, err := Take(ctx, d, s, now)
		if err != nil {
			out[i].Err = err
			continue
		}
		runs, places = append(runs, in), append(places, i)
	}
	if len(runs) == 0 {
		return out, nil
	}
	if err := a.Lost(); err != nil {
		return nil, err
	}
	if over := a.overload(len(runs)); over != nil {
		a.shed(len(runs), stats.ShedOverload)
		return nil, over
	}
	results, err := a.accepts.Call(ctx, runs)
	if err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	if err := a.awaitMoving(ctx, runs, results); err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	var unread error
	for i, r := range results {
		if r.failure != nil && !store.IsOfData(r.failure) {
			return nil, fmt.Errorf("accept events: %w", r.failure)
		}
		if errors.Is(r.Err, store.ErrConflict) {
			sent := events[places[i]]
			if outside {
				sent.fromOutside()
			}
			out[places[i]].Err, unread = a.conflict(ctx, sent.Event, r.Run, unread)
			continue
		}
		out[places[i]] = r.submitted(&runs[i])
	}
	return out, nil
}

// SubmitOne is SubmitOwn for one event.
func (a *Acceptor) SubmitOne(ctx context.Context, s Submission) (model.Receipt, error) {
	out, err := a.SubmitOwn(ctx, []Submission{s})
	if err != nil {
		return model.Receipt{}, err
	}
	return out[0].Receipt, out[0].Err
}

// SubmitFirings is SubmitOwn for the events of triggers. An event has the same content as an earlier one with its id if
// only how it was fired differs. See [triggers.Firer].
func (a *Acceptor) SubmitFirings(ctx context.Context, events []model.Event) (results []triggers.Result, err error) {
	all := make([]Submission, len(events))
	for i, ev := range events {
		all[i].Event = ev
		content := triggers.Content(ev)
		if all[i].Hash, err = hashEvent(&content); err != nil {
			return nil, fmt.Errorf("trigger %s: payload: %w", ev.Source, err)
		}
	}
	submitted, err := a.SubmitOwn(ctx, all)
	for _, s := range submitted {
		var why *Error
		if s.Err != nil && !errors.As(s.Err, &why) {
			return results, s.Err
		}
		// The trigger may have another payload today than when the event ran.
		ran := why != nil && why.Code == "id_conflict"
		r := triggers.Result{Run: s.Receipt.Run, Duplicate: s.Receipt.Duplicate || ran}
		if !ran {
			r.Refused = s.Err
		}
		results = append(results, r)
	}
	return results, err
}

// These bound how long events wait while their keys move to another database of the inbox.
const (
	movingWait  = 5 * time.Second
	movingPause = 10 * time.Millisecond
)

// awaitMoving retries events whose keys are moving, until the keys have arrived or it takes too
// long. Other senders do not wait for that. The events of a sender keep their order, because all
// events of a key are refused together.
func (a *Acceptor) awaitMoving(ctx context.Context, runs []model.Intake, results []accepted) error {
	backoff := clock.Backoff{First: movingPause, Most: 10 * movingPause}
	for began := time.Now(); ; {
		var left []model.Intake
		var places []int
		for i, r := range results {
			if errors.Is(r.Err, store.ErrMoving) {
				left, places = append(left, runs[i]), append(places, i)
			}
		}
		if len(left) == 0 || time.Since(began) > movingWait || !backoff.Pause(ctx) {
			return nil
		}
		again, err := a.accepts.Call(ctx, left)
		if err != nil {
			return err
		}
		for i, r := range again {
			results[places[i]] = r
		}
	}
}

// An accepted is the result of one event, or the error of its whole batch.
type accepted struct {
	store.Accepted
	failure error
}

// submitted converts it to the result for the sender, except a conflict.
func (r accepted) submitted(in *model.Intake) Submitted {
	switch {
	case errors.Is(r.failure, store.ErrRefused):
		return Submitted{Err: &Error{
			Code: "invalid_event", Message: fmt.Sprintf("the store cannot keep the event %s: %s; send it without that", in.Event.ID, r.failure),
		}}
	case r.failure != nil:
		return Submitted{Err: r.failure}
	case errors.Is(r.Err, store.ErrRejected):
		return Submitted{Err: &Error{
			Code: "event_rejected", Field: "type",
			Message: fmt.Sprintf("the present state of %s %s does not allow %s. %[3]s is allowed in: %s",
				in.Flow, in.Key, in.Event.Type, statesText(in.From)),
		}}
	case errors.Is(r.Err, store.ErrFull):
		return Submitted{Err: &Error{
			Code: "buffer_full", Field: "type",
			Message: fmt.Sprintf("%s %s already keeps %d events, or %d MiB of them, that no run has taken: begin the run that awaits %s, "+
				"or cancel the runs of such events, then send it again", in.Flow, in.Key, store.KeptEvents, store.KeptBytes>>20, in.Event.Type),
		}}
	case r.Err != nil:
		return Submitted{Err: r.Err}
	}
	return Submitted{Receipt: model.Receipt{
		Event: in.Event.ID, Run: r.Run, Duplicate: r.Duplicate, Undecided: r.Undecided,
		Key: in.Key,
	}}
}

// statesText formats states for people.
func statesText(from []string) string {
	from = slices.DeleteFunc(slices.Clone(from), func(s string) bool { return s == "" })
	if len(from) == 0 {
		return "no state at all"
	}
	return strings.Join(from, ", ")
}

// A transaction stores the events of many senders at once. The node tells the senders when the store
// does not answer. The write then goes on by itself, and its outcome is unknown.
type transaction struct{ *Acceptor }

// Write implements [writes.Shared].
func (t transaction) Write(runs []model.Intake) []accepted { return t.accept(runs) }

// reserve reserves room for runs whose end is not known, and marks those that begin on this node in the transaction of their events. That
// saves the claim, and the wait for it. Runs that end at once belong to this node, too, and take no room.
func (a *Acceptor) reserve(runs []model.Intake, now time.Time) Reservation {
	bundle := a.Library.Present().Bundle
	begin := 0
	for i := range runs {
		runs[i].Own = runs[i].End != nil
		if !runs[i].Own {
			begin++
		}
	}
	var low []int
	rest := runs // what does not begin with the first ones
	room := a.Room.Reserve(begin, func(room, share int) int {
		rest = behind(runs, room)
		low = a.Turns.Low(bundle, rest, share, now)
		return len(low)
	})
	owned := 0
	for i := range runs {
		if r := &runs[i]; r.End == nil && owned < room.Runs && !r.Event.At.After(now) {
			r.Own = true
			owned++
		}
	}
	if owned > 0 {
		a.Turns.Free()
	}
	for _, i := range low[:room.Kept] {
		rest[i].Own = true
	}
	a.Metrics.Passed.Add(float64(room.Kept))
	if owned < begin {
		a.Turns.Queue(bundle, runs, now)
	}
	return room
}

// behind returns the runs behind the first ones whose end is not known.
func behind(runs []model.Intake, first int) []model.Intake {
	for i := range runs {
		if first == 0 {
			return runs[i:]
		}
		if runs[i].End == nil {
			first--
		}
	}
	return nil
}

// accept stores a batch of events. Runs that may start at once belong to this node in the same
// transaction, as far as it has room and no other runs wait.
func (a *Acceptor) accept(runs []model.Intake) []accepted {
	ctx, cancel := context.WithTimeout(context.Background(), clock.StoreTimeout)
	defer cancel()
	now := a.Now()
	split := a.Library.Serving().String()
	for i := range runs {
		runs[i].Bundle, runs[i].Own, runs[i].End = model.VersionFor(split, runs[i].Flow, runs[i].Key), false, nil
	}
	ahead := a.Room.Foresee(runs)
	room := a.reserve(runs, now)
	if ahead != nil && room.Node == 0 {
		room.Node = ahead.Node()
	}
	began := time.Now()
	ended := a.Writes.Begin(began)
	results, err := a.Inbox.Accept(ctx, room.Node, runs)
	ended()
	if ahead != nil {
		ahead.Take(runs, results)
	}
	if room.Holder != nil {
		room.Holder.Take(room, results, err)
	}
	switch {
	case errors.Is(err, store.ErrFenced) && room.Node != 0:
		return a.accept(runs) // nothing was stored, and the node accepts no runs now
	case store.IsOfData(err) && len(runs) > 1:
		half := len(runs) / 2 // one event spoils the transaction for all: find it
		return append(a.accept(runs[:half:half]), a.accept(runs[half:])...)
	case store.IsOfData(err):
		a.Metrics.Failed("accept")
		return []accepted{{failure: err}}
	case err != nil:
		a.Metrics.Failed("accept")
		a.Writes.Note(err, began, time.Now())
		return slices.Repeat([]accepted{{failure: err}}, len(runs))
	}
	a.Writes.Note(nil, began, time.Now())
	out := make([]accepted, len(runs))
	stored, at := 0, time.Now()
	for i, r := range results {
		out[i].Accepted = r
		if errors.Is(r.Err, store.ErrFull) {
			a.Metrics.Untaken.WithLabelValues(stats.UntakenRefused).Inc()
		}
		if errors.Is(r.Err, store.ErrAway) {
			a.Metrics.Failed("accept")
		}
		if r.Err == nil && !r.Duplicate {
			stored++
			a.Stats.EventAccepted(runs[i].Pipeline, at)
		}
	}
	a.Metrics.Accepted.Add(float64(stored))
	return out
}
