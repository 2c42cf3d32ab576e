package sealed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// ledger seals the progress of runs.
type ledger struct {
	store.Ledger
	v *Vault
}

// The places of the data of a run and of a key.
func checkpointAt(run string) string         { return place("checkpoint", run) }
func errorAt(run string) string              { return place("error", run) }
func sharedAt(flow, name, key string) string { return place("shared", flow, name, key) }

// Join implements [store.Ledger]. From here on, nodes without encryption do not start.
func (l ledger) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	k, err := l.v.now(ctx)
	if err == nil && len(k.state.Keys) > 0 {
		err = l.v.refuseOthers(ctx, k.state.Since)
	}
	if err != nil {
		return 0, err
	}
	return l.Ledger.Join(ctx, name, lease)
}

// plainLedger is the ledger of a node that has no keys.
type plainLedger struct {
	store.Ledger
	v *Vault
}

// Join implements [store.Ledger]. A node that begins encryption meanwhile sees this one, or this one sees its keys.
func (l plainLedger) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	node, err := l.Ledger.Join(ctx, name, lease)
	if err != nil {
		return 0, err
	}
	k, err := l.v.Refresh(ctx)
	if err == nil {
		err = k.refusePlain()
	}
	if err != nil {
		return 0, errors.Join(err, l.Ledger.Leave(ctx, node, nil))
	}
	return node, nil
}

// Claim implements [store.Ledger].
func (l ledger) Claim(ctx context.Context, node int64, limit int, bundle string) ([]store.Claimed, error) {
	all, err := l.Ledger.Claim(ctx, node, limit, bundle)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := l.v.openClaimed(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// openClaimed opens a run that a node got. The error says that its key is missing. Then the run is sound, and the node must give it back.
func (v *Vault) openClaimed(ctx context.Context, c *store.Claimed) error {
	damaged := func(column string, err error) {
		if err != nil && c.Damage == nil {
			c.Damage = store.DamagedRun(c.ID, column, err)
		}
	}
	var event error
	if c.Stored != nil {
		c.Stored, event = v.openStored(ctx, c.ID, c.Stored)
	} else {
		event = v.openEvent(ctx, c.ID, &c.Event)
	}
	checkpoint, saved := v.openBytes(ctx, c.Checkpoint, checkpointAt(c.ID))
	state := v.openState(ctx, c.Flow, c.Key, &c.Entity)
	if err := errors.Join(event, saved, state); errors.Is(err, errNoKey) {
		return err
	}
	c.Checkpoint = checkpoint
	damaged("the event", event)
	damaged("the checkpoint", saved)
	damaged("the shared state of its key", state)
	return nil
}

// openState opens the values of a key's shared state.
func (v *Vault) openState(ctx context.Context, flow, key string, e *store.EntityState) error {
	shared, err := eachMember(e.Shared, func(name string, value json.RawMessage) (json.RawMessage, error) {
		return v.openJSON(ctx, value, sharedAt(flow, name, key))
	})
	e.Shared = shared
	return err
}

// eachMember replaces the values of a JSON object, which may be empty.
func eachMember(object []byte, replace func(name string, value json.RawMessage) (json.RawMessage, error)) ([]byte, error) {
	if len(object) == 0 {
		return object, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	for name, value := range members {
		value, err := replace(name, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		members[name] = value
	}
	return json.Marshal(members)
}

// Commit implements [store.Ledger].
func (l ledger) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	k, err := l.v.now(ctx)
	if err != nil {
		return nil, err
	}
	sealed := slices.Clone(changes)
	for i := range sealed {
		if err := k.change(&sealed[i]); err != nil {
			return nil, err
		}
	}
	return l.Ledger.Commit(ctx, node, sealed)
}

// change seals a step of a run.
func (k *keys) change(c *model.Change) (err error) {
	if k.active == nil {
		return nil
	}
	if c.Checkpoint, err = k.bytes(c.Checkpoint, checkpointAt(c.Run)); err != nil {
		return err
	}
	if c.Error, err = k.text(c.Error, errorAt(c.Run)); err != nil {
		return err
	}
	c.Shared, err = eachMember(c.Shared, func(name string, value json.RawMessage) (json.RawMessage, error) {
		return k.json(value, sharedAt(c.Flow, name, c.Key))
	})
	if err != nil {
		return fmt.Errorf("%w: shared state: %w", store.ErrRefused, err)
	}
	c.Emit, err = k.emits(c.Emit)
	return err
}

// emits seals events that runs emit.
func (k *keys) emits(events []model.Intake) (_ []model.Intake, err error) {
	events = slices.Clone(events)
	for i, in := range events {
		if events[i], err = k.intake(in); err != nil {
			return nil, err
		}
		forms, err := k.forms(in.Hash)
		if err != nil {
			return nil, err
		}
		events[i].Hash = forms[0]
	}
	return events, nil
}
