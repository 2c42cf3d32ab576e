package sealed

import (
	"context"
	"errors"

	"procaas/engine/store"
)

// runs opens the records of runs.
type runs struct {
	store.Runs
	v *Vault
}

// openRecord opens the record of a run.
func (v *Vault) openRecord(ctx context.Context, r *store.RunRecord) error {
	event := v.openEvent(ctx, r.ID, &r.Event)
	checkpoint, saved := v.openBytes(ctx, r.Checkpoint, checkpointAt(r.ID))
	err := errors.Join(event, saved)
	if errors.Is(err, errNoKey) {
		return err
	}
	if err != nil && r.Damage == nil {
		r.Damage = store.DamagedRun(r.ID, "its sealed data", err)
	}
	r.Checkpoint = checkpoint
	v.openError(ctx, &r.Error, errorAt(r.ID))
	return nil
}

// openRecords opens records with the result of reading them.
func (v *Vault) openRecords(ctx context.Context, all []store.RunRecord, err error) ([]store.RunRecord, error) {
	for i := range all {
		if err == nil {
			err = v.openRecord(ctx, &all[i])
		}
	}
	return all, err
}

// searches returns an error for a filter that looks into sealed texts.
func searches(texts ...string) error {
	for _, text := range texts {
		if text != "" {
			return store.ErrSealed
		}
	}
	return nil
}

// Run implements [store.Runs].
func (r runs) Run(ctx context.Context, id string) (store.RunRecord, error) {
	one, err := r.Runs.Run(ctx, id)
	if err == nil {
		err = r.v.openRecord(ctx, &one)
	}
	return one, err
}

// Newer implements [store.Runs].
func (r runs) Newer(ctx context.Context, of []store.Seen) ([]store.RunRecord, error) {
	all, err := r.Runs.Newer(ctx, of)
	return r.v.openRecords(ctx, all, err)
}

// List implements [store.Runs].
func (r runs) List(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	if err := searches(f.Text, f.Error); err != nil {
		return nil, "", err
	}
	all, next, err := r.Runs.List(ctx, f)
	all, err = r.v.openRecords(ctx, all, err)
	return all, next, err
}

// Count implements [store.Runs].
func (r runs) Count(ctx context.Context, f store.RunFilter) ([]store.RunCount, error) {
	if err := searches(f.Text, f.Error); err != nil {
		return nil, err
	}
	return r.Runs.Count(ctx, f)
}

// Entity implements [store.Runs].
func (r runs) Entity(ctx context.Context, flow, key string) (store.EntityRecord, error) {
	e, err := r.Runs.Entity(ctx, flow, key)
	if err != nil {
		return e, err
	}
	if e.Runs, err = r.v.openRecords(ctx, e.Runs, nil); err != nil {
		return e, err
	}
	return e, r.v.openState(ctx, flow, key, &e.EntityState)
}

// Cancel implements [store.Runs].
func (r runs) Cancel(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	tell, err := r.v.tell(ctx, tell)
	if err != nil {
		return err
	}
	return r.Runs.Cancel(ctx, id, by, tell)
}

// Undo implements [store.Runs].
func (r runs) Undo(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	tell, err := r.v.tell(ctx, tell)
	if err != nil {
		return err
	}
	return r.Runs.Undo(ctx, id, by, tell)
}

// tell seals the events about an end.
func (v *Vault) tell(ctx context.Context, tell store.Tell) (store.Tell, error) {
	k, err := v.now(ctx)
	if err == nil && k.active != nil {
		tell.Events, err = k.emits(tell.Events)
	}
	return tell, err
}

// MakeUp implements [store.Runs].
func (r runs) MakeUp(ctx context.Context, m store.MakeUp, by store.Actor) error {
	k, err := r.v.now(ctx)
	if err == nil {
		m.Checkpoint, err = k.bytes(m.Checkpoint, checkpointAt(m.Run))
	}
	if err != nil {
		return err
	}
	return r.Runs.MakeUp(ctx, m, by)
}

// marked is runs with cursors.
type marked struct {
	store.MarkedRuns
	v *Vault
}

// ListMarked implements [store.MarkedRuns].
func (m marked) ListMarked(ctx context.Context, f store.RunFilter) ([]store.RunRecord, []string, bool, error) {
	if err := searches(f.Text, f.Error); err != nil {
		return nil, nil, false, err
	}
	all, cursors, more, err := m.MarkedRuns.ListMarked(ctx, f)
	all, err = m.v.openRecords(ctx, all, err)
	return all, cursors, more, err
}

// trimmer opens the records of runs that leave.
type trimmer struct {
	store.Trimmer
	v *Vault
}

// Past implements [store.Trimmer].
func (t trimmer) Past(ctx context.Context, r store.Retention, limit int, bytes int64) ([]store.RunRecord, error) {
	all, err := t.Trimmer.Past(ctx, r, limit, bytes)
	return t.v.openRecords(ctx, all, err)
}
