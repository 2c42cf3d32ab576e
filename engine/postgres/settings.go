package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

const (
	insertBundle  = "insert into bundles (hash, files, accepted) values ($1, $2, clock_timestamp()) on conflict do nothing"
	findBundle    = "select files from bundles where hash = $1"
	findCurrent   = "select bundle from settings where bundle <> ''"
	lockSettings  = "select bundle from settings for no key update"
	writeCurrent  = "update settings set bundle = $1"
	isBundleKnown = "select exists (select from bundles where hash = $1)"
)

// Activate implements [store.Bundles].
func (s *Store) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (current string, err error) {
	err = s.tx(ctx, func(t *tx) error {
		var before string
		var known bool
		t.queue(lockSettings).QueryRow(value(&before))
		t.queue(isBundleKnown, hash).QueryRow(value(&known))
		if err := t.send(ctx); err != nil {
			return err
		}
		current = before
		if known && (before == hash || onlyNew && before != "") {
			return nil
		}
		current = hash
		t.queue(insertBundle, hash, files)
		if before == hash {
			return t.commit(ctx)
		}
		t.queue(writeCurrent, hash)
		if err := t.audit(ctx, store.Audited{
			Kind: store.AuditDefinition, By: by, Before: store.AuditText(before), After: store.AuditText(hash),
		}); err != nil {
			return err
		}
		return t.commit(ctx)
	})
	if err != nil {
		return "", fmt.Errorf("activate definition %s: %w", hash, err)
	}
	return current, nil
}

// Current implements [store.Bundles].
func (s *Store) Current(ctx context.Context) (hash string, err error) {
	err = s.pool.QueryRow(ctx, findCurrent).Scan(&hash)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNotFound
	}
	return hash, err
}

// Bundle implements [store.Bundles].
func (s *Store) Bundle(ctx context.Context, hash string) (files []byte, err error) {
	err = s.pool.QueryRow(ctx, findBundle, hash).Scan(&files)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNotFound
	}
	return files, err
}

// They read the revision with the settings, in one snapshot; its row comes
// without settings, too.
const (
	listConfigs = `select s.revision, c.name, c.value, null::bytea, c.revision, c.changed, c.actor, c.reason
	from settings s left join configs c on true`
	listControls = `select s.revision, c.path, c.value, null::bytea, c.revision, c.changed, c.actor, c.reason
	from settings s left join controls c on true`
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
	rows, err := s.pool.Query(ctx, query)
	if err != nil {
		return nil, 0, err
	}
	found := map[string]store.Setting{}
	var revision int64
	_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (none struct{}, err error) {
		var name, actor, reason *string
		var value, hash []byte
		var own *int64
		var changed *time.Time
		if err := r.Scan(&revision, &name, &value, &hash, &own, &changed, &actor, &reason); err != nil || name == nil {
			return none, err
		}
		found[*name] = store.Setting{
			Value: value, Hash: hash, Revision: *own, Changed: changed.UTC(), By: store.Actor{Name: *actor, Reason: *reason},
		}
		return none, nil
	})
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
		find:  "select value, revision from configs where name = $1",
		write: `insert into configs (name, value, revision, changed, actor, reason)
		values ($1, $2, $3, clock_timestamp(), $4, $5)
		on conflict (name) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`,
	}
	controlKind = settingKind{
		audit: store.AuditControl,
		find:  "select value, revision from controls where path = $1",
		write: `insert into controls (path, value, revision, changed, actor, reason)
		values ($1, $2, $3, clock_timestamp(), $4, $5)
		on conflict (path) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`,
		remove: "delete from controls where path = $1",
	}
)

// SetConfig implements [store.Settings].
func (s *Store) SetConfig(ctx context.Context, name string, value []byte, ifRevision int64, by store.Actor) (int64, error) {
	return s.set(ctx, configKind, name, value, ifRevision, by)
}

// SetControl implements [store.Settings].
func (s *Store) SetControl(ctx context.Context, path string, value []byte, ifRevision int64, by store.Actor) (int64, error) {
	revision, err := s.set(ctx, controlKind, path, value, ifRevision, by)
	if err == nil {
		s.hint(endOfQueue) // so that nodes look at once
	}
	return revision, err
}

// set stores a setting, or removes it when value is nil. Kinds with further
// columns take their values from more.
func (s *Store) set(ctx context.Context, kind settingKind, name string, value []byte, ifRevision int64, by store.Actor,
	more ...any,
) (revision int64, err error) {
	err = s.tx(ctx, func(t *tx) error {
		var before []byte
		var have int64
		end := lockAudit(&t.batch, 1) // what follows sees who came before
		t.queue(kind.find, name).QueryRow(func(r pgx.Row) error {
			if err := r.Scan(&before, &have); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
		if err := t.send(ctx); err != nil {
			return err
		}
		if ifRevision != -1 && ifRevision != have {
			return store.ErrConflict
		}
		revision = end.revision
		a := store.Audited{Kind: kind.audit, Name: name, By: by, Before: before, After: value}
		if value != nil {
			end.write(&t.batch, a)
			t.queue(kind.write, append([]any{name, value, revision, by.Name, text(by.Reason)}, more...)...)
			return t.commit(ctx)
		}
		if have == 0 {
			return store.ErrNotFound
		}
		a.After = store.AuditRemoved()
		end.write(&t.batch, a)
		t.queue(kind.remove, name)
		return t.commit(ctx)
	})
	if err != nil {
		return 0, fmt.Errorf("setting %s: %w", name, err)
	}
	return revision, nil
}

// release makes runs ready that are parked for a cause. Those that somebody else is just
// changing are passed by: as long as there are any, each beat tells of their cause again.
var release = readying(`update runs r set place = 'ready', due = clock_timestamp() where seq = any (array (
	select seq from runs where place = 'parked' and cause <> '' and cause = $1 order by seq limit $2
	for no key update skip locked))`)

// Release implements [store.Settings].
func (s *Store) Release(ctx context.Context, cause string, limit int) (n int, err error) {
	err = s.tx(ctx, func(t *tx) error {
		t.queue(release, cause, limit).QueryRow(func(row pgx.Row) (err error) {
			n, err = t.countReady(row)
			return err
		})
		return t.commit(ctx)
	})
	if err != nil {
		return 0, fmt.Errorf("release runs parked for %s: %w", cause, err)
	}
	return n, nil
}
