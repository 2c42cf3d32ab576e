package sealed

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// inbox seals the events that are accepted.
type inbox struct {
	store.Inbox
	v *Vault
}

// eventAt and startAt are the places of the data of an event, which belong to its run.
func eventAt(run string) string { return place("event", run) }
func startAt(run string) string { return place("start", run) }

// event seals the data of an event. What a store orders and finds events by stays plain.
func (k *keys) event(run string, e model.Event) (model.Event, error) {
	if k.active == nil {
		return e, nil
	}
	var err error
	if e.Payload != nil {
		payload, err := store.EncodePayload(e)
		if err != nil {
			return e, err
		}
		if e.Payload, err = k.text(string(payload), eventAt(run)); err != nil {
			return e, err
		}
	}
	e.Start, err = k.json(e.Start, startAt(run))
	return e, err
}

// intake seals an event to accept.
func (k *keys) intake(in model.Intake) (_ model.Intake, err error) {
	if in.Event, err = k.event(in.ID, in.Event); err != nil || in.End == nil {
		return in, err
	}
	end := *in.End
	in.End, err = &end, k.change(&end.Change)
	return in, err
}

// openEvent opens the data of an event.
func (v *Vault) openEvent(ctx context.Context, run string, e *model.Event) error {
	text, ok := e.Payload.(string)
	if _, _, is := split(text); ok && is {
		plain, err := v.openText(ctx, text, eventAt(run))
		if err == nil {
			e.Payload, err = store.DecodePayload([]byte(plain))
		}
		if err != nil {
			e.Payload = nil
			return err
		}
	}
	start, err := v.openJSON(ctx, e.Start, startAt(run))
	e.Start = start
	return err
}

// openStored opens the data of an event in its stored form.
func (v *Vault) openStored(ctx context.Context, run string, stored []byte) ([]byte, error) {
	return store.ReplaceData(stored, func(payload, start json.RawMessage) (p, s json.RawMessage, err error) {
		if p, err = v.openJSON(ctx, payload, eventAt(run)); err == nil {
			s, err = v.openJSON(ctx, start, startAt(run))
		}
		return p, s, err
	})
}

// hash makes a form of the hash of an event that nobody without the key can compare with guesses of the event. It names its key.
func (k hashKey) hash(plain string) (string, error) {
	sum, err := k.set.ComputePrimaryPRF([]byte(plain), 16)
	if err != nil {
		return "", fmt.Errorf("hash of an event: %w", err)
	}
	return mark + k.id + ":" + base64.RawURLEncoding.EncodeToString(sum), nil
}

// forms returns the forms in which the store may have the hash of an event. New events have the first one.
func (k *keys) forms(plain string) (forms []string, err error) {
	if plain == "" {
		return []string{""}, nil
	}
	for _, one := range k.hashes {
		form, err := one.hash(plain)
		if err != nil {
			return nil, err
		}
		forms = append(forms, form)
	}
	if k.active == nil {
		return append([]string{plain}, forms...), nil
	}
	return append(forms, plain), nil
}

// Accept implements [store.Inbox]. An event whose hash differs may be a duplicate whose hash was stored in another form, before
// encryption began or in another database. So it is tried again in each form. Then it is known, and nothing is stored.
func (i inbox) Accept(ctx context.Context, node int64, in []model.Intake) ([]store.Accepted, error) {
	k, err := i.v.now(ctx)
	if err != nil {
		return nil, err
	}
	sealed := make([]model.Intake, len(in))
	forms := make([][]string, len(in))
	for n, one := range in {
		if sealed[n], err = k.intake(one); err == nil {
			forms[n], err = k.forms(one.Hash)
		}
		if err != nil {
			return nil, err
		}
	}
	out := make([]store.Accepted, len(in))
	left := make([]int, len(in))
	for n := range left {
		left[n] = n
	}
	for form := 0; form == 0 || len(left) > 0; form++ {
		if err := i.accept(ctx, node, sealed, forms, form, left, out); err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(n int) bool { return !errors.Is(out[n].Err, store.ErrConflict) || len(forms[n]) == form+1 })
	}
	for n := range out {
		if c := out[n].Claimed; c != nil {
			c.Event.Payload, c.Event.Start = in[n].Event.Payload, in[n].Event.Start
			if err := i.v.openState(ctx, c.Flow, c.Key, &c.Entity); err != nil {
				if errors.Is(err, errNoKey) {
					return nil, err
				}
				c.Damage = store.DamagedRun(c.ID, "the shared state of its key", err)
			}
		}
	}
	return out, nil
}

// accept accepts some of the events with one form of their hashes.
func (i inbox) accept(ctx context.Context, node int64, sealed []model.Intake, forms [][]string, form int, some []int, out []store.Accepted) error {
	var now []model.Intake
	for _, n := range some {
		sealed[n].Hash = forms[n][form]
		now = append(now, sealed[n])
	}
	got, err := i.Inbox.Accept(ctx, node, now)
	if err != nil && form > 0 {
		return fmt.Errorf("whether events are duplicates: %s", err) // others were stored: the outcome of the batch is unknown
	}
	if err != nil {
		return err
	}
	for at, n := range some {
		out[n] = got[at]
	}
	return nil
}

// Pending implements [store.Inbox]. It leaves out a damaged event: the run of that event is set aside when its turn comes.
func (i inbox) Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) ([]model.Pending, error) {
	all, err := i.Inbox.Pending(ctx, flow, key, types, after, limit)
	if err != nil {
		return nil, err
	}
	sound := all[:0]
	for _, p := range all {
		err := i.v.openEvent(ctx, p.Run, &p.Event)
		if errors.Is(err, errNoKey) {
			return nil, err
		}
		if err == nil {
			sound = append(sound, p)
		}
	}
	return sound, nil
}
