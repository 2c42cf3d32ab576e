package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"procaas/engine/store"
)

const (
	insertBundle = "insert into bundles (hash, files, accepted) values (?, ?, ?) on conflict do nothing"
	findBundle   = "select files from bundles where hash = ?"
	findCurrent  = "select hash from definition"
	writeCurrent = "insert into definition (one, hash) values (1, ?) on conflict (one) do update set hash = excluded.hash"
)

// Activate implements [store.Bundles].
func (s *Store) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (current string, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		if _, err := t.row(findCurrent, nil, &current); err != nil {
			return err
		}
		news, err := t.count(insertBundle, hash, files, t.now.UnixMicro())
		if err != nil || hash == current || onlyNew && news == 0 && current != "" {
			return err
		}
		before := current
		current = hash
		if err := t.exec(writeCurrent, hash); err != nil {
			return err
		}
		_, err = t.audit(store.Audited{
			Kind: store.AuditDefinition, By: by, Before: store.AuditText(before), After: store.AuditText(hash),
		})
		return err
	})
	return current, err
}

// Current implements [store.Bundles].
func (s *Store) Current(ctx context.Context) (hash string, err error) {
	err = s.read.QueryRowContext(ctx, findCurrent).Scan(&hash)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	return hash, err
}

// Bundle implements [store.Bundles].
func (s *Store) Bundle(ctx context.Context, hash string) (files []byte, err error) {
	err = s.read.QueryRowContext(ctx, findBundle, hash).Scan(&files)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	return files, err
}

const (
	listConfigs  = "select name, value, null, revision, changed, actor, reason from configs"
	listControls = "select path, value, null, revision, changed, actor, reason from controls"
)

// Configs implements [store.Settings].
func (s *Store) Configs(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listConfigs)
}

// Controls implements [store.Settings].
func (s *Store) Controls(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listControls)
}

// settings reads all settings of a kind by their names.
func (s *Store) settings(ctx context.Context, query string) (map[string]store.Setting, int64, error) {
	// One transaction, so that the revision is the one of these values.
	t, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	defer t.Rollback()
	r, err := t.QueryContext(ctx, query)
	if err != nil {
		return nil, 0, err
	}
	found := map[string]store.Setting{}
	_, err = collect(r, func(r *sql.Rows) (struct{}, error) {
		var name string
		var c store.Setting
		var changed sql.NullInt64
		err := r.Scan(&name, &c.Value, &c.Hash, &c.Revision, &changed, &c.By.Name, &c.By.Reason)
		c.Changed = fromMicros(changed)
		found[name] = c
		return struct{}{}, err
	})
	if err != nil {
		return nil, 0, err
	}
	var revision int64
	err = t.QueryRowContext(ctx, settingsRevision).Scan(&revision)
	return found, revision, err
}

// A settingKind is where settings of a kind are kept.
type settingKind struct {
	audit               string
	find, write, remove string
}

// The kinds of settings.
var (
	configKind = settingKind{
		audit: store.AuditConfig,
		find:  "select value, revision from configs where name = ?",
		write: `insert into configs (name, value, revision, changed, actor, reason) values (?, ?, ?, ?, ?, ?)
		on conflict (name) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`,
	}
	controlKind = settingKind{
		audit: store.AuditControl,
		find:  "select value, revision from controls where path = ?",
		write: `insert into controls (path, value, revision, changed, actor, reason) values (?, ?, ?, ?, ?, ?)
		on conflict (path) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`,
		remove: "delete from controls where path = ?",
	}
)

// SetConfig implements [store.Settings].
func (s *Store) SetConfig(ctx context.Context, name string, value []byte, ifRevision int64, by store.Actor) (int64, error) {
	return s.set(ctx, configKind, name, value, ifRevision, by)
}

// SetControl implements [store.Settings].
func (s *Store) SetControl(ctx context.Context, path string, value []byte, ifRevision int64, by store.Actor) (int64, error) {
	return s.set(ctx, controlKind, path, value, ifRevision, by)
}

// set stores a setting, or removes it when value is nil. Kinds with further
// columns take their values from more.
func (s *Store) set(ctx context.Context, kind settingKind, name string, value []byte, ifRevision int64, by store.Actor,
	more ...any,
) (revision int64, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		var before []byte
		var have int64
		if _, err := t.row(kind.find, []any{name}, &before, &have); err != nil {
			return err
		}
		if ifRevision != -1 && ifRevision != have {
			return store.ErrConflict
		}
		a := store.Audited{Kind: kind.audit, Name: name, By: by, Before: before, After: value}
		if value == nil {
			if have == 0 {
				return store.ErrNotFound
			}
			a.After = store.AuditRemoved()
		}
		var err error
		if revision, err = t.audit(a); err != nil {
			return err
		}
		if value == nil {
			return t.exec(kind.remove, name)
		}
		return t.exec(kind.write, append([]any{name, value, revision, t.now.UnixMicro(), by.Name, by.Reason}, more...)...)
	})
	return revision, err
}

const release = `update runs set place = 'ready', due = ? where seq in (
	select seq from runs where place = 'parked' and cause <> '' and cause = ? order by seq limit ?)`

// Release implements [store.Settings].
func (s *Store) Release(ctx context.Context, cause string, limit int) (n int, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		count, err := t.count(release, t.now.UnixMicro(), cause, limit)
		n, t.ready = int(count), t.ready || count > 0
		return err
	})
	return n, err
}
