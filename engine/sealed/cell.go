package sealed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// moves brings the data keys along with rows that move between databases. The rows stay sealed.
type moves struct {
	store.SlotMoves
	v *Vault
	r *Ring
}

// known returns the data keys of all databases that this process has open.
func (r *Ring) known() (all []DataKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.vaults {
		all = append(all, v.have.Load().state.Keys...)
	}
	return all
}

// all reads the data keys again. A process whose file lacks a key-encryption key does not know them all, so what it moves could not be opened
// in another database.
func (v *Vault) all(ctx context.Context) error {
	k, err := v.Refresh(ctx)
	if err != nil {
		return err
	}
	for id := range k.listed {
		if !slices.ContainsFunc(k.state.Keys, func(one DataKey) bool { return one.ID == id }) {
			return keyErrorf("the data key %s of the store does not open with %s, so this node moves nothing: give it the file that the other nodes have", id,
				v.file)
		}
	}
	return nil
}

// Export implements [store.SlotMoves]. The data keys of the rows are known before Import gets them.
func (m moves) Export(ctx context.Context, what store.CellPart, slots []int, since int64, cursor string) ([]byte, string, error) {
	rows, next, err := m.SlotMoves.Export(ctx, what, slots, since, cursor)
	if err == nil {
		err = m.v.all(ctx)
	}
	return rows, next, err
}

// Import implements [store.SlotMoves].
func (m moves) Import(ctx context.Context, move string, what store.CellPart, rows []byte) error {
	if err := m.v.adopt(ctx, m.r.known()); err != nil {
		return err
	}
	return m.SlotMoves.Import(ctx, move, what, rows)
}

// parcels does the same for tasks that move.
type parcels struct {
	store.SharedTasks
	v *Vault
	r *Ring
}

// Parcels implements [store.SharedTasks].
func (p parcels) Parcels(ctx context.Context) ([]store.TaskParcel, error) {
	all, err := p.SharedTasks.Parcels(ctx)
	if err == nil && len(all) > 0 {
		err = p.v.all(ctx)
	}
	return all, err
}

// PackTasks implements [store.SharedTasks].
func (p parcels) PackTasks(ctx context.Context, move, target string, slots []int, ids []int64, taken bool) (store.TaskParcel, error) {
	if err := p.v.all(ctx); err != nil { // packed tasks wait for somebody who can bring their keys along
		return store.TaskParcel{}, err
	}
	one, err := p.SharedTasks.PackTasks(ctx, move, target, slots, ids, taken)
	if err == nil {
		err = p.v.all(ctx)
	}
	return one, err
}

// UnpackTasks implements [store.SharedTasks].
func (p parcels) UnpackTasks(ctx context.Context, one store.TaskParcel) error {
	if err := p.v.adopt(ctx, p.r.known()); err != nil {
		return err
	}
	return p.SharedTasks.UnpackTasks(ctx, one)
}

// outbox opens events for other databases, which seal them with their own keys.
type outbox struct {
	store.Outbox
	v *Vault
}

// OutboxEvents implements [store.Outbox].
func (o outbox) OutboxEvents(ctx context.Context, slots []int, numbers []int64, limit int) ([]store.OutboxEvent, error) {
	all, err := o.Outbox.OutboxEvents(ctx, slots, numbers, limit)
	if err != nil {
		return nil, err
	}
	for i := range all {
		one := &all[i]
		if one.Damage != nil {
			continue
		}
		err := o.v.openEvent(ctx, one.Intake.ID, &one.Intake.Event)
		if errors.Is(err, errNoKey) {
			return nil, err
		}
		if err != nil {
			one.Intake, one.Damage = model.Intake{}, fmt.Errorf("%w: event of run %s: %w", store.ErrDamaged, one.Intake.ID, err)
		}
	}
	return all, nil
}
