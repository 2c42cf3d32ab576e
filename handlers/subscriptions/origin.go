package subscriptions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/subscriptions/language"
)

// docAgain are documents with the events that a subscription has submitted more than once, for people. Each node has its own.
const docAgain = "subscription-again"

// keptAgain is of how many such events a node knows, the last ones.
const keptAgain = 500

// A repeat is an event that was there already when the subscription submitted it.
type repeat struct {
	Event string `json:"event"` // a hash of its id, which may name a person
	Times int    `json:"times"`
}

func hashOf(event string) string {
	sum := sha256.Sum256([]byte(event))
	return hex.EncodeToString(sum[:8])
}

// repeated notes that events were there already. It is only for people, so an error is none of the batch.
func (r *reader) repeated(ctx context.Context, events []string) {
	if len(events) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellEvery)
	defer cancel()
	name := r.seen.id + "/" + r.m.Name
	all, err := r.m.repeats(ctx, name)
	for _, event := range events {
		one := repeat{Event: hashOf(event)}
		if i := slices.IndexFunc(all, func(x repeat) bool { return x.Event == one.Event }); i >= 0 {
			one = all[i]
			all = slices.Delete(all, i, i+1)
		}
		one.Times++
		all = append(all, one)
	}
	all = all[max(0, len(all)-keptAgain):]
	if err == nil {
		_, err = r.m.Store.Documents.WriteDocuments(ctx, 0, []store.DocumentWrite{{
			Kind: docAgain, Name: name, Version: store.AnyVersion, Value: model.EncodeJSON(all),
		}}, nil)
	}
	if err != nil {
		r.m.Log.Debug("nobody will see which events came again", "subscription", r.seen.id, "events", len(events), "error", err)
	}
}

// repeats reads what a node has noted of a subscription.
func (m *Readers) repeats(ctx context.Context, name string) (all []repeat, err error) {
	d, err := m.Store.Documents.Document(ctx, docAgain, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err == nil:
		err = json.Unmarshal(d.Value, &all)
	}
	return all, err
}

// Origin says which message an event was, and how often it was submitted, as far as that is known. It is empty for an event that no
// subscription has submitted.
func (m *Readers) Origin(ctx context.Context, e checkpoint.EventView) string {
	id, ok := strings.CutPrefix(e.Source, language.SourceOf(""))
	if !ok {
		return ""
	}
	out := "subscription " + id
	if s := language.Of(m.Engine.Bundle(), id); s != nil {
		out += ": " + placeOf(s, e.ID)
	}
	said, err := m.Store.Documents.DocumentsOf(ctx, docAgain, id+"/")
	if err != nil {
		return out
	}
	times := 0
	for _, d := range said {
		var all []repeat
		if json.Unmarshal(d.Value, &all) != nil {
			continue
		}
		if i := slices.IndexFunc(all, func(x repeat) bool { return x.Event == hashOf(e.ID) }); i >= 0 {
			times += all[i].Times
		}
	}
	if times > 0 {
		out += fmt.Sprintf("; submitted %d times, and stored once", times+1)
	}
	return out
}

// placeOf says where a message was in what a subscription reads. The id of its event has the place, unless event-id gives it another one.
func placeOf(s *language.Subscription, event string) string {
	place, ok := strings.CutPrefix(event, s.From()+"/")
	if !ok || !s.EventID.IsNull() {
		return s.Origin()
	}
	parts := strings.Split(place, "/")
	at, _, _ := strings.Cut(parts[len(parts)-1], "-")
	switch {
	case s.Broker == "nats":
		return "message " + at + " of the " + s.Origin()
	case s.Broker == "kafka" && len(parts) == 3:
		return "partition " + parts[1] + ", offset " + at + " of the " + s.Origin()
	case s.Broker == "postgres":
		return "row " + place[:max(0, strings.LastIndex(place, "-"))] + " of the " + s.Origin()
	}
	return s.Origin()
}
