package subscriptions

import (
	"context"
	"errors"
	"fmt"

	"procaas/engine/secrets"
	"procaas/engine/store"
	"procaas/handlers/subscriptions/broker"
)

// docGroup are documents with the [broker.Source.Origin] that a group has read. How far, only the broker knows. So it is noted before
// anything is read: a broker that has forgotten the group would begin again, and miss messages or repeat them as new ones.
const docGroup = "subscription-group"

// open connects to the broker.
func (r *reader) open(ctx context.Context) (broker.Source, error) {
	s := r.sub.Load()
	name := s.Broker + "/" + s.From() + "/" + s.GroupName()
	d, err := r.m.Store.Documents.Document(ctx, docGroup, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	known := string(d.Value)
	source, err := r.m.Brokers[s.Broker].Open(ctx, broker.Options{
		Subscription: s, Log: r.m.Log, Known: known, Connection: &broker.Connection{
			Connection: s.Connection(), Client: "procaas-" + s.ID, Dial: r.m.Dial,
			Secret: func(name string) (string, error) {
				return r.m.Secrets(secrets.Use{Name: name, To: s.ID, Owner: s.Owner})
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.Broker, err)
	}
	if source.Origin() == known {
		return source, nil
	}
	_, err = r.m.Store.Documents.WriteDocuments(ctx, 0, []store.DocumentWrite{{
		Kind: docGroup, Name: name, Version: store.AnyVersion, Value: []byte(source.Origin()),
	}}, nil)
	if err != nil {
		source.Close()
		return nil, fmt.Errorf("note what the group reads: %w", err)
	}
	return source, nil
}
