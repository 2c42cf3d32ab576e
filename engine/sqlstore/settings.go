package sqlstore

import (
	"context"
	"fmt"
	"time"

	"procaas/engine/store"
)

const (
	insertBundle  = "insert into bundles (hash, files, accepted) values ($1, $2, {now}) on conflict do nothing"
	findBundle    = "select files from bundles where hash = $1"
	isBundleKnown = "select 1 from bundles where hash = $1"
	listBundles   = "select hash, accepted from bundles order by accepted desc, hash"
	findCurrent   = "{current}"
	lockCurrent   = "{current, locked}"
	writeCurrent  = "{write current}"
)

// Activate implements [store.Bundles].
func (s *Store) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (current string, err error) {
	err = s.db.Write(ctx, func(t Tx) error {
		before := ""
		t.Queue(lockCurrent, nil, &before)
		known := t.Queue(isBundleKnown, []any{hash}, new(int))
		if err := t.Send(ctx); err != nil {
			return err
		}
		current = before
		if known.Rows > 0 && (before == hash || onlyNew && before != "") {
			return nil
		}
		current = hash
		t.Queue(insertBundle, []any{hash, files})
		if before == hash {
			return nil
		}
		t.Queue(writeCurrent, []any{hash})
		return Audit(ctx, t, activated(before, hash, by))
	})
	if err != nil {
		return "", fmt.Errorf("activate definition %s: %w", hash, err)
	}
	return current, nil
}

// Keep implements [store.Bundles].
func (s *Store) Keep(ctx context.Context, hash string, files []byte) error {
	err := s.db.Write(ctx, func(t Tx) error {
		t.Queue(insertBundle, []any{hash, files})
		return t.Send(ctx)
	})
	if err != nil {
		return fmt.Errorf("keep definition %s: %w", hash, err)
	}
	return nil
}

// Promote implements [store.Bundles].
func (s *Store) Promote(ctx context.Context, old, hash string, by store.Actor) (done bool, err error) {
	err = s.db.Write(ctx, func(t Tx) error {
		before := ""
		t.Queue(lockCurrent, nil, &before)
		if err := t.Send(ctx); err != nil {
			return err
		}
		done = before == old
		if !done {
			return nil
		}
		t.Queue(writeCurrent, []any{hash})
		return Audit(ctx, t, activated(before, hash, by))
	})
	if err != nil {
		return false, fmt.Errorf("promote definition %s: %w", hash, err)
	}
	return done, nil
}

// activated returns the audit record of a new current definition.
func activated(before, hash string, by store.Actor) store.Audited {
	return store.Audited{Kind: store.AuditDefinition, By: by, Before: store.AuditText(before), After: store.AuditText(hash)}
}

// Current implements [store.Bundles].
func (s *Store) Current(ctx context.Context) (hash string, err error) {
	err = find(ctx, s.db, findCurrent, nil, &hash)
	if err == nil && hash == "" {
		err = store.ErrNotFound
	}
	return hash, err
}

// Bundle implements [store.Bundles].
func (s *Store) Bundle(ctx context.Context, hash string) (files []byte, err error) {
	err = find(ctx, s.db, findBundle, []any{hash}, &files)
	return files, err
}

// Stored implements [store.Bundles].
func (s *Store) Stored(ctx context.Context) (all []store.StoredBundle, err error) {
	err = s.db.Read(ctx, listBundles, nil, func(r Row) error {
		var b store.StoredBundle
		err := r.Scan(&b.Hash, at(&b.Stored))
		all = append(all, b)
		return err
	})
	return all, err
}

// These read the revision with the settings, in one snapshot. The row of the revision exists even
// without settings.
const (
	listConfigs = `select s.revision, c.name, c.value, null, c.revision, c.changed, c.actor, c.reason
	from {revision} s left join configs c on true`
	listControls = `select s.revision, c.path, c.value, null, c.revision, c.changed, c.actor, c.reason
	from {revision} s left join controls c on true`
	listTokens = `select s.revision, c.name, c.value, c.hash, c.revision, c.changed, c.actor, c.reason
	from {revision} s left join tokens c on true`
)

// Configs implements [store.Settings].
func (s *Store) Configs(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listConfigs)
}

// Controls implements [store.Settings].
func (s *Store) Controls(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listControls)
}

// AllTokens implements [store.Tokens].
func (s *Store) AllTokens(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listTokens)
}

// settings reads all settings of a kind by name.
func (s *Store) settings(ctx context.Context, query string) (map[string]store.Setting, int64, error) {
	found := map[string]store.Setting{}
	var revision int64
	err := s.db.Read(ctx, query, nil, func(r Row) error {
		var name, actor, reason *string
		var value, hash []byte
		var own *int64
		var changed time.Time
		if err := r.Scan(&revision, &name, &value, &hash, &own, at(&changed), &actor, &reason); err != nil || name == nil {
			return err
		}
		found[*name] = store.Setting{
			Value: value, Hash: hash, Revision: *own, Changed: changed, By: store.Actor{Name: *actor, Reason: *reason},
		}
		return nil
	})
	return found, revision, err
}

// A settingKind says where a kind of settings is stored.
type settingKind struct {
	audit               string
	find, write, remove string
}

// These are the kinds of settings.
var (
	configKind = settingKind{
		audit: store.AuditConfig,
		find:  "select value, revision from configs where name = $1",
		write: `insert into configs (name, value, revision, changed, actor, reason) values ($1, $2, $3, {now}, $4, $5)
		on conflict (name) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`,
	}
	controlKind = settingKind{
		audit: store.AuditControl,
		find:  "select value, revision from controls where path = $1",
		write: `insert into controls (path, value, revision, changed, actor, reason) values ($1, $2, $3, {now}, $4, $5)
		on conflict (path) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`,
		remove: "delete from controls where path = $1",
	}
	tokenKind = settingKind{
		audit: store.AuditToken,
		find:  "select value, revision from tokens where name = $1",
		write: `insert into tokens (name, value, revision, changed, actor, reason, hash) values ($1, $2, $3, {now}, $4, $5, $6)
		on conflict (name) do update set value = excluded.value, revision = excluded.revision,
		changed = excluded.changed, actor = excluded.actor, reason = excluded.reason, hash = excluded.hash`,
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
		s.OnSettings()
	}
	return revision, err
}

// SetToken implements [store.Tokens].
func (s *Store) SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by store.Actor) (int64, error) {
	revision, err := s.set(ctx, tokenKind, name, value, ifRevision, by, append([]byte{}, hash...))
	if err == nil {
		s.OnSettings()
	}
	return revision, err
}

// set stores a setting, or removes it if value is nil. more has the values of further columns.
func (s *Store) set(ctx context.Context, kind settingKind, name string, value []byte, ifRevision int64, by store.Actor,
	more ...any,
) (revision int64, err error) {
	err = s.db.Write(ctx, func(t Tx) error {
		var before []byte
		var have int64
		end := lockAudit(t, 1) // the next statements see earlier changes
		t.Queue(kind.find, []any{name}, &before, &have)
		if err := t.Send(ctx); err != nil {
			return err
		}
		if ifRevision != -1 && ifRevision != have {
			return store.ErrConflict
		}
		revision = end.revision
		a := store.Audited{Kind: kind.audit, Name: name, By: by, Before: before, After: value}
		if value != nil {
			end.write(t, a)
			t.Queue(kind.write, append([]any{name, value, revision, by.Name, Text(by.Reason)}, more...))
			return nil
		}
		if have == 0 {
			return store.ErrNotFound
		}
		a.After = store.AuditRemoved()
		end.write(t, a)
		t.Queue(kind.remove, []any{name})
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("setting %s: %w", name, err)
	}
	return revision, nil
}
