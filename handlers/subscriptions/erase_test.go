package subscriptions

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/memory"
	"procaas/engine/store"
	"procaas/handlers"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// declaring is an engine that has a definition, and does nothing.
type declaring struct {
	Engine
	bundle *tree.Bundle
}

func (d declaring) Bundle() *tree.Bundle { return d.bundle }

func TestDeadLettersOfAKeyAreErased(t *testing.T) {
	t.Parallel()
	b, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(`
subscriptions:
  - {id: fixed, broker: nats, servers: ["nats://127.0.0.1:1"], stream: S, type: pay}
  - {id: mapped, broker: nats, servers: ["nats://127.0.0.1:1"], stream: S, type: !$ message.body.type, key: !$ message.body.key}
flows:
  - {id: orders, key: !$ event.payload.order}
pipelines:
  - {id: pay, flow: orders, stages: [{id: a, handlers: [{id: h, set: {}}]}]}
  - {id: ride, stages: [{id: a, handlers: [{id: h, set: {}}]}]}
`)}}, dsl.Options{Language: tree.NewLanguage(language.Section()), Types: engine.Types(handlers.All())})
	if b == nil {
		t.Fatal(found)
	}
	m := New(Options{Engine: declaring{bundle: b}, Store: memory.New(nil).Ports()})
	for subscription, messages := range map[string][]broker.Message{
		"fixed": {
			{ID: "broken", Key: "o-1", Body: []byte("{")},
			{ID: "other", Key: "o-2", Body: []byte("{")},
			{ID: "inside", Key: "c-7", Body: []byte(`{"order": "o-1"}`)},
			{ID: "elsewhere", Key: "o-1", Body: []byte(`{"order": "o-2"}`)}, // the flow decides what the key is
			{ID: "large", Key: "o-1", Body: make([]byte, MaxBody+1)},
		},
		"mapped": {
			{ID: "of-no-flow", Key: "x", Body: []byte(`{"type": "unknown", "key": "o-1"}`)},
			{ID: "of-another-flow", Key: "o-1", Body: []byte(`{"type": "ride", "key": "o-1"}`)},
			{ID: "unreadable", Key: "o-1", Body: []byte("{")},
		},
		"gone": {{ID: "left-behind", Key: "o-1", Body: []byte(`{}`)}},
	} {
		for _, message := range messages {
			if _, err := m.letters.add(t.Context(), subscription, 100, []dead{{message, "why"}}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() (ids []string) {
		for _, subscription := range []string{"fixed", "mapped", "gone"} {
			all, _, err := m.letters.list(t.Context(), subscription)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range all {
				ids = append(ids, x.ID)
			}
		}
		return ids
	}
	before := left()
	for _, step := range []struct {
		preview bool
		count   int
		left    []string
	}{
		{true, 6, before},
		{false, 6, []string{"other", "elsewhere", "of-another-flow"}},
		{false, 0, []string{"other", "elsewhere", "of-another-flow"}},
	} {
		have, err := m.Erase(t.Context(), store.Erasing{Flow: "orders", Key: "o-1", Pipelines: []string{"pay"}, Preview: step.preview})
		if err != nil || have.Counts["dead_messages"] != step.count {
			t.Errorf("preview %v: want %d letters, have %v, %v", step.preview, step.count, have, err)
		}
		if have := left(); !slices.Equal(have, step.left) {
			t.Errorf("preview %v: want %v left, have %v", step.preview, step.left, have)
		}
	}
	bodies, err := m.Store.Documents.DocumentsOf(t.Context(), docLetter, "fixed/")
	if err != nil {
		t.Fatal(err)
	}
	if have := fmt.Sprintf("%s", bodies[0].Value); have != "null" {
		t.Errorf("want the message gone, too, have %s", have)
	}
}

// TestSubmittedEventsOfAKeyAreErased asks for what waits in the store, with and without a subscription that would take it.
func TestSubmittedEventsOfAKeyAreErased(t *testing.T) {
	t.Parallel()
	for subscription, want := range map[string][]string{
		"": {"a", "b"}, // what they are of is unknown, and the key fits
		"subscriptions:\n  - {id: s, broker: store, type: !$ message.subject}\n": {"a"},
	} {
		b, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(subscription + `
flows: [{id: orders}]
pipelines:
  - {id: pay, flow: orders, stages: [{id: a, handlers: [{id: h, set: {}}]}]}
  - {id: ride, stages: [{id: a, handlers: [{id: h, set: {}}]}]}
`)}}, dsl.Options{Language: tree.NewLanguage(language.Section()), Types: engine.Types(handlers.All())})
		if b == nil {
			t.Fatal(found)
		}
		var gone []string
		m := New(Options{
			Engine: declaring{bundle: b}, Store: memory.New(nil).Ports(),
			Submitted: func(_ context.Context, is func(*broker.Message) bool, remove bool) (int, error) {
				for _, message := range []broker.Message{
					{ID: "a", Subject: "pay", Key: "o-1", Body: []byte("{}")},
					{ID: "b", Subject: "ride", Key: "o-1", Body: []byte("{}")},
					{ID: "c", Subject: "pay", Key: "o-2", Body: []byte("{}")},
				} {
					if is(&message) && remove {
						gone = append(gone, message.ID)
					}
				}
				return len(gone), nil
			},
		})
		have, err := m.Erase(t.Context(), store.Erasing{Flow: "orders", Key: "o-1", Pipelines: []string{"pay"}})
		if err != nil || have.Counts["submitted_events"] != len(want) || !slices.Equal(gone, want) {
			t.Errorf("%q: want %v erased, have %v, %v, %v", subscription, want, gone, have, err)
		}
	}
}
