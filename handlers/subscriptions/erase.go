package subscriptions

import (
	"context"
	"errors"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine/intake"
	"procaas/engine/store"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// Erase removes the dead letters of a key, also those of subscriptions that the definition no longer has, and what was submitted of it to
// the store. It implements [store.EraseFunc].
func (m *Readers) Erase(ctx context.Context, of store.Erasing) (store.Erased, error) {
	lists, err := m.letters.docs.DocumentsOf(ctx, docLetters, "")
	found := 0
	for _, d := range lists {
		ids, failed := m.lettersOf(ctx, d.Name, of)
		if failed == nil && len(ids) > 0 && !of.Preview {
			failed = m.letters.settle(ctx, d.Name, ids, nil, nil)
		}
		if failed != nil {
			err = failed
			break
		}
		found += len(ids)
	}
	counts := map[string]int{"dead_messages": found}
	if err == nil && m.Submitted != nil {
		counts["submitted_events"], err = m.eraseSubmitted(ctx, of)
	}
	return store.Erased{Counts: counts}, err
}

// eraseSubmitted removes what programs have submitted of a key, and no node has taken yet, for example because operators hold the
// subscription.
func (m *Readers) eraseSubmitted(ctx context.Context, of store.Erasing) (int, error) {
	b := m.Engine.Bundle()
	var reads *language.Subscription // nil if nobody does
	for _, s := range language.All(b) {
		if s.OfStore() {
			reads = s
		}
	}
	return m.Submitted(ctx, func(message *broker.Message) bool { return isOf(b, reads, message, of) }, !of.Preview)
}

// lettersOf lists the dead letters of a subscription that are of a key.
func (m *Readers) lettersOf(ctx context.Context, subscription string, of store.Erasing) (ids []string, err error) {
	b := m.Engine.Bundle()
	s := language.Of(b, subscription)
	all, _, err := m.letters.list(ctx, subscription)
	for _, x := range all {
		message, err := m.letters.message(ctx, subscription, x)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if message.ID != x.ID { // it has left meanwhile, and another one has its slot
			continue
		}
		if isOf(b, s, &message, of) {
			ids = append(ids, x.ID)
		}
	}
	return ids, err
}

// isOf reports whether a message is of a key: its event has the key, or the message has if it makes no event. A message that may be of
// several flows is of each.
func isOf(b *tree.Bundle, s *language.Subscription, m *broker.Message, of store.Erasing) bool {
	keys := []string{m.Key}
	var served []*tree.Pipeline
	if s != nil {
		name, _ := s.Type.Text()
		if in, wanted, err := Map(s, m); err == nil && wanted {
			name, keys = in.Event.Type, append(keys, in.Event.Key)
			if f := b.Flow(of.Flow); f != nil {
				if key, err := intake.FlowKey(f, in.Event); err == nil {
					keys = []string{key}
				}
			}
		}
		served = slices.Concat(b.On(name), b.Awaiting(name))
	}
	ofFlow := func(p *tree.Pipeline) bool { return p.FlowID() == of.Flow }
	return slices.Contains(keys, of.Key) && (len(served) == 0 || slices.ContainsFunc(served, ofFlow))
}
