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

// This file makes the keys of calls and the ids of events. They are derived from their place in the
// run, so a repetition on any node has the same ones.

// identity is what the keys of the run's calls are derived from. It is the event's id if the sender
// gave one, so a run that begins again after a restore has the same keys.
func (s *Start) identity() string { return cmp.Or(s.Event.Identity, s.ID) }

// idempotencyKey returns the key of a call, the same for all attempts.
func idempotencyKey(run, path string, iteration int) string {
	return model.Digest(run, path, strconv.Itoa(iteration))
}

// A redone has how often each ref was undone and will be done again. Most runs have none.
type redone map[string]int

// add counts a ref.
func (r *redone) add(ref string) {
	if *r == nil {
		*r = redone{}
	}
	(*r)[ref]++
}

// forgetUndone notes what a run inside a call has undone and will do again. A call that was
// reversed needs a new key, or the service would take it for a repetition.
func (r *Run) forgetUndone() {
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeSucceeded {
			r.whole.redone.add(r.within + s.Path)
		}
		for sub := range rec.calls() {
			sub.forgetUndone()
		}
	}
}

// refs lists each ref as often as it was undone.
func (r redone) refs() (refs []string) {
	if len(r) == 0 {
		return nil
	}
	for _, ref := range slices.Sorted(maps.Keys(r)) {
		refs = append(refs, slices.Repeat([]string{ref}, r[ref])...)
	}
	return refs
}

// keyed returns the part of a key that distinguishes a handler's calls: its ref, and how often it
// or a call around it was undone before.
func (r redone) keyed(ref string) string {
	if len(r) == 0 {
		return ref
	}
	var b strings.Builder
	for end, rest := 0, ref; rest != ""; {
		part, after, inside := strings.Cut(rest, model.IntoCall)
		b.WriteString(part)
		end += len(part)
		path, _, _ := strings.Cut(strings.TrimSuffix(part, model.UndoPath), "[")
		if n := r[ref[:end-len(part)]+path]; n > 0 {
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

// completeAll completes the events that a call has emitted. It refuses payloads that no store can
// keep, and events that make a chain too long.
func (r *Run) completeAll(u unit, emitted []model.Event, live Live) ([]model.Event, error) {
	events := make([]model.Event, len(emitted))
	for i, e := range emitted {
		if _, err := model.EncodeData(e.Payload); err != nil {
			return nil, model.Permanent(fmt.Errorf("payload of event %d: %w", i+1, err))
		}
		events[i] = r.complete(u, i, e, live)
		if err := r.whole.extent.hop(&events[i], r.start.Event, live.Now); err != nil {
			return nil, model.Permanent(err)
		}
	}
	return events, nil
}

// complete fills in the missing fields of an emitted event. The id is derived from the run, the
// handler and the event's number, so a repeated handler emits the same ids.
func (r *Run) complete(u unit, i int, e model.Event, live Live) model.Event {
	if e.ID != "" {
		e.Identity = model.Digest("emitted", e.Source, e.ID)
	} else if r.start.Event.Identity != "" {
		e.Identity = model.Digest(r.start.Event.Identity, r.whole.redone.keyed(r.within+u.ref()), "emit", strconv.Itoa(i))
	}
	if e.ID == "" {
		e.ID = model.Digest(r.start.ID, r.whole.redone.keyed(r.within+u.ref()), "emit", strconv.Itoa(i))
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
