package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"procaas/engine"
)

const (
	insertBundle = "insert into bundles (hash, files, accepted) values (?, ?, ?) on conflict do nothing"
	findBundle   = "select files from bundles where hash = ?"
)

// SaveBundle implements [engine.Bundles].
func (s *Store) SaveBundle(ctx context.Context, hash string, files []byte) error {
	return s.writer.do(ctx, func(t *tx) error { return t.exec(insertBundle, hash, files, t.now.UnixMicro()) })
}

// Bundle implements [engine.Bundles].
func (s *Store) Bundle(ctx context.Context, hash string) (files []byte, err error) {
	err = s.read.QueryRowContext(ctx, findBundle, hash).Scan(&files)
	if errors.Is(err, sql.ErrNoRows) {
		err = engine.ErrNotFound
	}
	return files, err
}

const (
	listConfigs = "select name, value, revision, changed, actor, reason from configs"
	findConfig  = "select value, revision from configs where name = ?"
	insertAudit = `insert into audit (changed, actor, reason, name, before, after) values (?, ?, ?, ?, ?, ?)
	returning revision`
	writeConfig = `insert into configs (name, value, revision, changed, actor, reason) values (?, ?, ?, ?, ?, ?)
	on conflict (name) do update set value = excluded.value, revision = excluded.revision,
	changed = excluded.changed, actor = excluded.actor, reason = excluded.reason`
)

// Configs implements [engine.Settings].
func (s *Store) Configs(ctx context.Context) (map[string]engine.Setting, int64, error) {
	// One transaction, so that the revision is the one of these values.
	t, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	defer t.Rollback()
	r, err := t.QueryContext(ctx, listConfigs)
	if err != nil {
		return nil, 0, err
	}
	configs := map[string]engine.Setting{}
	_, err = collect(r, func(r *sql.Rows) (struct{}, error) {
		var name string
		var c engine.Setting
		var changed sql.NullInt64
		err := r.Scan(&name, &c.Value, &c.Revision, &changed, &c.By.Name, &c.By.Reason)
		c.Changed = fromMicros(changed)
		configs[name] = c
		return struct{}{}, err
	})
	if err != nil {
		return nil, 0, err
	}
	var revision int64
	err = t.QueryRowContext(ctx, settingsRevision).Scan(&revision)
	return configs, revision, err
}

// SetConfig implements [engine.Settings].
func (s *Store) SetConfig(ctx context.Context, name string, value []byte, ifRevision int64, by engine.Actor) (revision int64, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		var before []byte
		var have int64
		if _, err := t.row(findConfig, []any{name}, &before, &have); err != nil {
			return err
		}
		if ifRevision != -1 && ifRevision != have {
			return engine.ErrConflict
		}
		now := t.now.UnixMicro()
		if _, err := t.row(insertAudit, []any{now, by.Name, by.Reason, name, before, value}, &revision); err != nil {
			return err
		}
		return t.exec(writeConfig, name, value, revision, now, by.Name, by.Reason)
	})
	return revision, err
}
