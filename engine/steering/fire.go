package steering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// This file fires triggers for operators: now, and for due times in the past.

// A FiredNow is what became of a firing by hand.
type FiredNow struct {
	Trigger   string `json:"trigger" doc:"The id of the trigger."`
	Event     string `json:"event" doc:"The id of its event."`
	Run       string `json:"run" doc:"The run of the event."`
	Duplicate bool   `json:"duplicate" doc:"true if an earlier call with this id fired it."`
}

// RunTrigger fires a trigger now, also a paused one. Its overlap policy does not hold for that. Two calls with the same id
// fire once. An empty id is a new one. The error is a [*guard.ControlError] if there is no such trigger, and an
// [*intake.Error] if no pipeline takes its event.
func (st *Steering) RunTrigger(ctx context.Context, id, firing string, by store.Actor) (FiredNow, error) {
	_, t, err := st.trigger(id)
	if err != nil {
		return FiredNow{}, err
	}
	ev, err := triggers.ByHandAt(t, cmp.Or(firing, intake.NewID()), st.Clock.Now())
	if err != nil {
		return FiredNow{}, err
	}
	audited := store.Audited{Kind: store.AuditTrigger, Name: triggers.Path(id), By: by, After: store.AuditText("fired by hand, event " + ev.ID)}
	// Before the event, so that the overlap policy sees its run from its beginning.
	_, err = st.marks().Change(ctx, id, func(m *triggers.Mark) bool { return m.Ask(triggers.ByHand, ev) }, audited)
	if err != nil {
		return FiredNow{}, err
	}
	results, err := st.Inbox.SubmitFirings(ctx, []model.Event{ev})
	if err != nil {
		return FiredNow{}, fmt.Errorf("fire trigger %s: %w", id, err)
	}
	r := results[0]
	if r.Refused != nil {
		return FiredNow{}, r.Refused
	}
	if !r.Duplicate {
		st.countFirings(id, triggers.Fired, 1)
	}
	return FiredNow{Trigger: id, Event: ev.ID, Run: r.Run, Duplicate: r.Duplicate}, nil
}

// A Backfill says which due times of a trigger to fire.
type Backfill struct {
	From   time.Time // the first due time may be this one
	To     time.Time // the last due time is before it
	DryRun bool      // changes nothing
	Forgot bool      // also fires what is too old for the store to know whether it ran
}

// A Backfilled is what one call of a backfill did.
type Backfilled struct {
	Trigger string     `json:"trigger" doc:"The id of the trigger."`
	DryRun  bool       `json:"dry_run,omitempty" doc:"true if nothing was fired."`
	To      time.Time  `json:"to" doc:"The end of the window, for the next call."`
	Times   []PastTime `json:"times" doc:"The due times that this call handled, in order and in the time zone of the trigger."`
	Fired   int        `json:"fired" doc:"How many of them fired now; with dry_run, how many would."`
	Ran     int        `json:"ran" doc:"How many had fired before."`
	Refused int        `json:"refused" doc:"How many events no pipeline takes."`
	Left    int        `json:"left" doc:"How many due times of the window follow."`
	Waits   string     `json:"waits_for,omitempty" doc:"The last run of the call before, if it has not begun. Then this call has fired nothing: call again later."`
	Next    *time.Time `json:"next" doc:"Where the next call goes on: its from. null at the end."`
}

// A PastTime is a due time in the past.
type PastTime struct {
	Time time.Time `json:"time" doc:"The due time."`
	Run  string    `json:"run,omitempty" doc:"Its run; absent if it would be a new one, or if the store no longer knows it."`
	Ran  bool      `json:"ran" doc:"true if it had fired before."`
	Why  string    `json:"refused,omitempty" doc:"Why no pipeline takes its event."`
}

// These bound backfills.
const (
	MaxBackfill   = 10_000 // due times of a window
	backfillPage  = 100    // due times of one call
	backfillBatch = 25     // events to submit at once, so that those of others come between
)

// A BackfillError says why a window cannot be fired.
type BackfillError struct{ Message string }

// Error implements error.
func (e *BackfillError) Error() string { return e.Message }

// BackfillTrigger fires a trigger for the due times of a window that have no event yet, oldest first. A call handles a
// part of the window, and says where the next one goes on. What has fired is a duplicate, so a window may be repeated. The
// error is a [*guard.ControlError] if there is no such trigger, and a [*BackfillError] for a window that is refused.
func (st *Steering) BackfillTrigger(ctx context.Context, id string, how Backfill, by store.Actor) (done Backfilled, err error) {
	b, t, err := st.trigger(id)
	if err != nil {
		return done, err
	}
	due, err := st.window(ctx, b, t, how)
	if err != nil {
		return done, err
	}
	done = Backfilled{Trigger: id, DryRun: how.DryRun, To: how.To, Times: []PastTime{}}
	page := due[:min(len(due), backfillPage)]
	if how.DryRun {
		err = st.look(ctx, t, page, &done)
	} else {
		err = st.backfill(ctx, t, page, how, by, &done)
	}
	zone, zoneErr := time.LoadLocation(t.TimeZone)
	for i := range done.Times {
		if zoneErr == nil {
			done.Times[i].Time = done.Times[i].Time.In(zone)
		}
	}
	done.Left = len(due) - len(done.Times)
	if done.Left > 0 {
		done.Next = new(due[len(done.Times)])
	}
	return done, err
}

// window lists the due times of a window.
func (st *Steering) window(ctx context.Context, b *tree.Bundle, t *tree.Trigger, how Backfill) ([]time.Time, error) {
	refuse := func(format string, args ...any) ([]time.Time, error) {
		return nil, &BackfillError{fmt.Sprintf(format, args...)}
	}
	now := st.Clock.Now()
	switch {
	case !how.From.Before(how.To):
		return refuse("from: want a time before to, which is %s, have %s", at(how.To), at(how.From))
	case how.To.After(now):
		return refuse("to: want a time that has passed, have %s; it is %s now, and the trigger fires later times by itself", at(how.To), at(now))
	}
	due, err := triggers.Window(t, how.From, how.To, MaxBackfill)
	var many *triggers.WindowError
	if errors.As(err, &many) {
		return refuse("%s of trigger %s: want a shorter one, such as up to %s, and then the rest", err, t.ID, at(many.At))
	}
	if err != nil || how.Forgot || how.DryRun || len(due) == 0 {
		return due, err
	}
	known, why, err := st.knownSince(ctx, b, t)
	if err != nil {
		return nil, err
	}
	old, _ := slices.BinarySearchFunc(due, known, time.Time.Compare)
	if old == 0 {
		return due, nil
	}
	// The retention goes on while the operator reads this.
	remedy := "Fire them all the same with forgotten (--forgotten on the command line)"
	if safe, _ := slices.BinarySearchFunc(due, known.Add(time.Hour), time.Time.Compare); safe < len(due) {
		remedy = "Begin at " + at(due[safe]) + ", or fire them all the same with forgotten (--forgotten on the command line)"
	}
	return refuse("%d of %d due times are before %s: their runs may be deleted (%s), and what has run would run again. %s", old, len(due),
		at(known.Truncate(time.Second)), why, remedy)
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// knownSince returns since when the store knows all firings of a trigger, and why it does not know older ones. It is
// zero if it knows all.
func (st *Steering) knownSince(ctx context.Context, b *tree.Bundle, t *tree.Trigger) (known time.Time, why string, err error) {
	keeps := store.Retention{Keep: st.Retention, Pipelines: map[string]time.Duration{}}
	now := st.Clock.Now()
	for _, id := range pipelinesOf(b, t) {
		p := b.Pipeline(id)
		if p.Retention > 0 {
			keeps.Pipelines[id] = p.Retention
		}
		// The id of a firing leaves the store with its run, which ended after the due time.
		if keep := keeps.Of(id); keep > 0 && now.Add(-keep).After(known) {
			known, why = now.Add(-keep), fmt.Sprintf("the retention of pipeline %s is %s", id, keep)
		}
		if p.Keep == 0 {
			continue
		}
		last, err := st.keptSince(ctx, p)
		if err != nil {
			return known, "", err
		}
		if last.After(known) {
			known, why = last, fmt.Sprintf("pipeline %s keeps %d runs", id, p.Keep)
		}
	}
	return known, why, nil
}

// keptSince returns a time before which runs of a pipeline with keep may be deleted, or zero if none is. A deleted run
// ended before the last runs that are kept did.
func (st *Steering) keptSince(ctx context.Context, p *tree.Pipeline) (time.Time, error) {
	const most = 1000 // that a listing has
	list, next, err := st.Store.Runs.List(ctx, store.RunFilter{Pipeline: p.ID, Limit: most, Brief: true})
	if err != nil {
		return time.Time{}, fmt.Errorf("runs of pipeline %s: %w", p.ID, err)
	}
	var ends []time.Time
	for i := range list {
		if !list[i].Ended.IsZero() && list[i].Status != model.Failed {
			ends = append(ends, list[i].Ended)
		}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	switch {
	case next != "" || p.Keep >= most:
		return st.Clock.Now(), nil // too many to know
	case len(ends) < p.Keep:
		return time.Time{}, nil
	}
	return ends[p.Keep-1], nil
}

// look says for due times whether they have fired.
func (st *Steering) look(ctx context.Context, t *tree.Trigger, due []time.Time, done *Backfilled) error {
	for _, d := range due {
		ev, err := triggers.BackfillAt(t, d)
		if err != nil {
			return err
		}
		run, err := st.Store.Inbox.EventRun(ctx, ev.Source, ev.ID)
		if err != nil {
			return fmt.Errorf("trigger %s: firing of %s: %w", t.ID, at(d), err)
		}
		done.note(d, triggers.Result{Run: run, Duplicate: run != ""})
	}
	return nil
}

// waits returns the last run of the latest backfill of a trigger, if it has not begun. So no more than the runs of one
// call wait, and those of other events come between.
func (st *Steering) waits(ctx context.Context, t *tree.Trigger) (run string, err error) {
	mark, err := st.marks().Read(ctx, t.ID)
	if err != nil {
		return "", err
	}
	last, ok := mark.Asked[triggers.ByBackfill]
	if !ok {
		return "", nil
	}
	if run, err = st.Store.Inbox.EventRun(ctx, triggers.Source(t.ID), last.ID); err != nil || run == "" {
		return "", err
	}
	r, err := st.Store.Runs.Run(ctx, run)
	if errors.Is(err, store.ErrNotFound) || err == nil && (r.Bundle != "" || r.Status.Ended()) {
		return "", nil
	}
	return run, err
}

// backfill fires due times, unless runs of the call before wait to begin.
func (st *Steering) backfill(
	ctx context.Context, t *tree.Trigger, due []time.Time, how Backfill, by store.Actor, done *Backfilled,
) error {
	if len(due) == 0 {
		return nil
	}
	var err error
	if done.Waits, err = st.waits(ctx, t); err != nil || done.Waits != "" {
		return err
	}
	last, err := triggers.BackfillAt(t, due[len(due)-1])
	if err != nil {
		return err
	}
	text := fmt.Sprintf("backfill from %s to %s, here %d times up to %s", at(how.From), at(how.To), len(due), at(due[len(due)-1]))
	audited := store.Audited{Kind: store.AuditTrigger, Name: triggers.Path(t.ID), By: by, After: store.AuditText(text)}
	ask := func(m *triggers.Mark) bool {
		m.Ask(triggers.ByBackfill, last)
		return true // each call is in the audit
	}
	if _, err := st.marks().Change(ctx, t.ID, ask, audited); err != nil {
		return err
	}
	for some := range slices.Chunk(due, backfillBatch) {
		events := make([]model.Event, len(some))
		for i, d := range some {
			if events[i], err = triggers.BackfillAt(t, d); err != nil {
				return err
			}
		}
		before := done.Fired
		results, err := st.Inbox.SubmitFirings(ctx, events)
		for i, r := range results {
			done.note(some[i], r)
		}
		st.countFirings(t.ID, triggers.Fired, done.Fired-before)
		if err != nil && len(done.Times) > 0 {
			st.Log.Warn("a backfill stops early, its caller goes on", "trigger", t.ID, "error", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("fire trigger %s: %w", t.ID, err)
		}
	}
	return nil
}

// note counts what became of a due time.
func (d *Backfilled) note(due time.Time, r triggers.Result) {
	p := PastTime{Time: due, Run: r.Run, Ran: r.Duplicate}
	switch {
	case r.Refused != nil:
		p.Why = r.Refused.Error()
		d.Refused++
	case r.Duplicate:
		d.Ran++
	default:
		d.Fired++
	}
	d.Times = append(d.Times, p)
}
