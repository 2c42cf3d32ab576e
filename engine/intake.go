package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/clock"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/engine/taskrun"
)

// Submit accepts events of others, which may use no source that begins with procaas/.
// When it returns, those without an error are durable.
// Each event is accepted or refused for itself. The error is for all of them: with
// an [*OverloadError] none is stored; otherwise the store could not be reached, and
// it is unknown whether they were stored. Then submitting those again that have an
// id is safe.
func (e *Engine) Submit(ctx context.Context, events []intake.Submission) ([]intake.Submitted, error) {
	events = slices.Clone(events)
	for i := range events {
		events[i].Event.Inner = false
		if queue := events[i].Queue; queue != "" {
			events[i].Event.Source, events[i].Event.Inner = taskrun.TaskSource(queue), true
		}
	}
	return e.submit(ctx, events)
}

// submit is Submit for events of the engine's own as well.
func (e *Engine) submit(ctx context.Context, events []intake.Submission) ([]intake.Submitted, error) {
	d, now := e.library.Present(), e.clock.Now()
	out := make([]intake.Submitted, len(events))
	runs := make([]model.Intake, 0, len(events))
	places := make([]int, 0, len(events))
	for i, s := range events {
		in, err := intake.Take(ctx, d, s, now)
		if err != nil {
			out[i].Err = err
			continue
		}
		runs, places = append(runs, in), append(places, i)
	}
	if len(runs) == 0 {
		return out, nil
	}
	if err := e.loss.state(); err != nil {
		return nil, err
	}
	if over := e.overload(len(runs)); over != nil {
		e.shed(len(runs), stats.ShedOverload)
		return nil, over
	}
	results, err := e.accepts.call(ctx, runs)
	if err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	if err := e.awaitMoving(ctx, runs, results); err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	for i, r := range results {
		if r.failure != nil {
			return nil, fmt.Errorf("accept events: %w", r.failure)
		}
		out[places[i]] = r.submitted(&runs[i])
	}
	return out, nil
}

// submitOne is submit for one event.
func (e *Engine) submitOne(ctx context.Context, s intake.Submission) (model.Receipt, error) {
	out, err := e.submit(ctx, []intake.Submission{s})
	if err != nil {
		return model.Receipt{}, err
	}
	return out[0].Receipt, out[0].Err
}

// submitFirings is submit for the events of triggers; see [triggers.Firer].
func (e *Engine) submitFirings(ctx context.Context, events []model.Event) (refused []error, err error) {
	all := make([]intake.Submission, len(events))
	for i, ev := range events {
		all[i].Event = ev
	}
	results, err := e.submit(ctx, all)
	for _, r := range results {
		var why *intake.Error
		if r.Err != nil && !errors.As(r.Err, &why) {
			return refused, r.Err
		}
		refused = append(refused, r.Err)
	}
	return refused, err
}

// How long events wait whose keys are on their way to another cluster of the inbox.
const (
	movingWait  = 5 * time.Second
	movingPause = 10 * time.Millisecond
)

// awaitMoving hands events in again whose keys are on their way, until they have arrived
// or it takes too long. Other senders do not wait for that. The events of a sender keep
// their order, since all of a key are refused together.
func (e *Engine) awaitMoving(ctx context.Context, runs []model.Intake, results []accepted) error {
	wait := movingPause
	for began := time.Now(); ; wait = min(2*wait, 10*movingPause) {
		var left []model.Intake
		var places []int
		for i, r := range results {
			if errors.Is(r.Err, store.ErrMoving) {
				left, places = append(left, runs[i]), append(places, i)
			}
		}
		if len(left) == 0 || time.Since(began) > movingWait || !clock.Pause(ctx, wait) {
			return nil
		}
		again, err := e.accepts.call(ctx, left)
		if err != nil {
			return err
		}
		for i, r := range again {
			results[places[i]] = r
		}
	}
}

// An accepted is what became of one event, or the failure of its whole batch.
type accepted struct {
	store.Accepted
	failure error
}

// submitted makes it readable for the sender.
func (a accepted) submitted(in *model.Intake) intake.Submitted {
	switch {
	case errors.Is(a.Err, store.ErrConflict):
		return intake.Submitted{Err: &intake.Error{
			Code: "id_conflict", Field: "id",
			Message: fmt.Sprintf("event %s of source %q was accepted before with another content; "+
				"send it with its own id", in.Event.ID, in.Event.Source),
		}}
	case errors.Is(a.Err, store.ErrRejected):
		return intake.Submitted{Err: &intake.Error{
			Code: "event_rejected", Field: "type",
			Message: fmt.Sprintf("the present state of %s %s does not allow %s; it comes from %s",
				in.Flow, in.Key, in.Event.Type, statesText(in.From)),
		}}
	case a.Err != nil:
		return intake.Submitted{Err: a.Err}
	}
	return intake.Submitted{Receipt: model.Receipt{
		Event: in.Event.ID, Run: a.Run, Duplicate: a.Duplicate, Undecided: a.Undecided,
		Key: in.Key,
	}}
}

// statesText lists states for people.
func statesText(from []string) string {
	from = slices.DeleteFunc(slices.Clone(from), func(s string) bool { return s == "" })
	if len(from) == 0 {
		return "no state at all"
	}
	return strings.Join(from, ", ")
}

// accept stores a batch of events. Those that may start at once become runs of
// this node in the same transaction, as far as it has room and no others wait.
func (e *Engine) accept(runs []model.Intake) []accepted {
	ctx, cancel := context.WithTimeout(context.Background(), clock.StoreTimeout)
	defer cancel()
	n, asked, number := e.node.Load(), 0, int64(0)
	if n != nil && !n.backlog.Load() {
		if asked = n.ask(min(len(runs), n.left())); asked > 0 {
			number = n.number
		}
	}
	// A run that this node has room for is its own in the same transaction: that saves the
	// claim, and the wait for it.
	now, owned, bundle := e.clock.Now(), 0, e.Bundle().Hash
	for i := range runs {
		runs[i].Bundle = bundle
		runs[i].Own = owned < asked && !runs[i].Event.At.After(now)
		if runs[i].Own {
			owned++
		}
	}
	results, err := e.o.Store.Inbox.Accept(ctx, number, runs)
	e.start(n, asked, results, err)
	switch {
	case errors.Is(err, store.ErrFenced) && number != 0:
		return e.accept(runs) // nothing was stored; by now the node takes no more
	case err != nil:
		e.metrics.Failed("accept")
		e.writes.note(err, time.Now())
		return slices.Repeat([]accepted{{failure: err}}, len(runs))
	}
	e.writes.note(nil, time.Now())
	out := make([]accepted, len(runs))
	for i, r := range results {
		out[i].Accepted = r
		if errors.Is(r.Err, store.ErrAway) {
			e.metrics.Failed("accept")
		}
		if r.Err == nil && !r.Duplicate {
			e.metrics.Accepted.Inc()
		}
	}
	return out
}

// start begins the runs that came with an Accept, and lets the node look for the
// others.
func (e *Engine) start(n *node, asked int, results []store.Accepted, err error) {
	if n == nil {
		return
	}
	var claimed []*store.Claimed
	for _, r := range results {
		if r.Claimed != nil {
			claimed = append(claimed, r.Claimed)
		}
	}
	switch {
	case errors.Is(err, store.ErrFenced):
		n.fence()
	case err != nil && asked > 0:
		n.lost.Store(true)
	}
	for _, r := range results {
		if asked > 0 && errors.Is(r.Err, store.ErrAway) {
			n.lost.Store(true)
		}
	}
	if asked > 0 {
		n.take(asked, claimed)
	}
	if len(claimed) < len(results) || err != nil {
		n.nudge()
	}
}
