package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"procaas/engine/model"
)

// This file makes the keys of calls and the ids of events. They follow from where in its run something is,
// so that it has the same ones however often and on whatever node it is repeated.

// identity is what the keys of the run's calls follow from: its event, when that had an id
// of its own, so that a run that begins anew after a restore has the same.
func (s *Start) identity() string { return cmp.Or(s.Event.Identity, s.ID) }

// idempotencyKey is the same for all attempts of a call, wherever and whenever
// they are made.
func idempotencyKey(run, path string, iteration int) string {
	return model.Digest(run, path, strconv.Itoa(iteration))
}

// forgetUndone notes what a run inside of a call has undone, which is to be done again: a
// call that was reversed must not be taken for a repetition of itself.
func (r *progress) forgetUndone() {
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeSucceeded {
			r.redone[r.within+s.Path]++
		}
		for sub := range rec.calls() {
			sub.forgetUndone()
		}
	}
}

// undoneBefore lists what was undone, to be done again, as often as it was.
func (r *progress) undoneBefore() (refs []string) {
	for _, ref := range slices.Sorted(maps.Keys(r.redone)) {
		refs = append(refs, slices.Repeat([]string{ref}, r.redone[ref])...)
	}
	return refs
}

// keyed returns what makes the keys of a handler's calls different from those of others: its
// ref, with the number of times that it, or a call that it is inside of, was undone before.
func (r *progress) keyed(ref string) string {
	ref = r.within + ref
	if len(r.redone) == 0 {
		return ref
	}
	var b strings.Builder
	for end, rest := 0, ref; rest != ""; {
		part, after, inside := strings.Cut(rest, model.IntoCall)
		b.WriteString(part)
		end += len(part)
		path, _, _ := strings.Cut(strings.TrimSuffix(part, model.UndoPath), "[")
		if n := r.redone[ref[:end-len(part)]+path]; n > 0 {
			fmt.Fprintf(&b, "~%d", n)
		}
		if inside {
			b.WriteString(model.IntoCall)
			end += len(model.IntoCall)
		}
		rest = after
	}
	return b.String()
}

// completeAll makes the events complete that a call has emitted. It refuses those whose
// payload no store could keep, and those that make a chain too long.
func (r *progress) completeAll(u unit, emitted []model.Event, live Live) ([]model.Event, error) {
	events := make([]model.Event, len(emitted))
	for i, e := range emitted {
		if _, err := model.EncodeData(e.Payload); err != nil {
			return nil, model.Permanent(fmt.Errorf("payload of event %d: %w", i+1, err))
		}
		events[i] = r.complete(u, i, e, live)
		if err := r.extent.hop(&events[i], r.start.Event, live.Now); err != nil {
			return nil, model.Permanent(err)
		}
	}
	return events, nil
}

// complete fills what an emitted event leaves open. An id that follows from the
// run, the handler and the event's number is found again when the handler had
// to be repeated.
func (r *progress) complete(u unit, i int, e model.Event, live Live) model.Event {
	if e.ID != "" {
		e.Identity = model.Digest("emitted", e.Source, e.ID)
	} else if r.start.Event.Identity != "" {
		e.Identity = model.Digest(r.start.Event.Identity, r.keyed(u.ref()), "emit", strconv.Itoa(i))
	}
	if e.ID == "" {
		e.ID = model.Digest(r.start.ID, r.keyed(u.ref()), "emit", strconv.Itoa(i))
	}
	if e.Source == "" {
		e.Source = model.ReservedSource + "run/" + r.start.ID
	}
	e.Inner = true
	if e.Time.IsZero() {
		e.Time = model.Stamp(live.Now)
	}
	if e.TraceParent == "" {
		e.TraceParent, e.TraceState = r.start.Event.TraceParent, r.start.Event.TraceState
	}
	return e
}
