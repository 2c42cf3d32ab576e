package sqlite

import (
	"context"
	"database/sql"
	"math"
	"time"

	"procaas/engine"
)

const listTokens = "select name, value, hash, revision, changed, actor, reason from tokens"

var tokenKind = settingKind{
	audit: engine.AuditToken,
	find:  "select value, revision from tokens where name = ?",
	write: `insert into tokens (name, value, revision, changed, actor, reason, hash) values (?, ?, ?, ?, ?, ?, ?)
	on conflict (name) do update set value = excluded.value, revision = excluded.revision,
	changed = excluded.changed, actor = excluded.actor, reason = excluded.reason, hash = excluded.hash`,
}

// Tokens implements [engine.Tokens].
func (s *Store) Tokens(ctx context.Context) (map[string]engine.Setting, int64, error) {
	return s.settings(ctx, listTokens)
}

// SetToken implements [engine.Tokens].
func (s *Store) SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by engine.Actor) (int64, error) {
	return s.set(ctx, tokenKind, name, value, ifRevision, by, append([]byte{}, hash...))
}

const (
	insertAudit = `insert into audit (changed, actor, reason, kind, name, before, after) values (?, ?, ?, ?, ?, ?, ?)
	returning revision`
	listAudit = `select revision, changed, actor, reason, kind, name, before, after from audit where revision < ?`
)

// audit writes down a change, and so gives the settings their next revision.
func (t *tx) audit(a engine.Audited) (revision int64, err error) {
	_, err = t.row(insertAudit, []any{t.now.UnixMicro(), a.By.Name, a.By.Reason, a.Kind, a.Name, blob(a.Before), a.After}, &revision)
	return revision, err
}

// Audit implements [engine.Audits].
func (s *Store) Audit(ctx context.Context, f engine.AuditFilter) ([]engine.Audited, error) {
	before := int64(math.MaxInt64)
	if f.Before > 0 {
		before = f.Before
	}
	query, args := listAudit, []any{before}
	and := func(condition string, with ...any) {
		query += " and " + condition
		args = append(args, with...)
	}
	if f.Kind != "" {
		and("kind = ?", f.Kind)
	}
	if f.Name != "" {
		and("(name = ? or substr(name, 1, length(?)) = ?)", f.Name, f.Name+"/", f.Name+"/")
	}
	if f.By != "" {
		and("actor = ?", f.By)
	}
	if !f.Since.IsZero() {
		and("changed >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		and("changed < ?", f.Until.UnixMicro())
	}
	r, err := s.read.QueryContext(ctx, query+" order by revision desc limit ?", append(args, f.Limit)...)
	if err != nil {
		return nil, err
	}
	return collect(r, func(r *sql.Rows) (a engine.Audited, err error) {
		var changed sql.NullInt64
		err = r.Scan(&a.Revision, &changed, &a.By.Name, &a.By.Reason, &a.Kind, &a.Name, &a.Before, &a.After)
		a.Changed = fromMicros(changed)
		return a, err
	})
}

// forgetAudits is how many audit records one ForgetAudit looks at.
const forgetAudits = 1000

const (
	setHorizon  = "update audit_horizon set forget_before = ?"
	deleteAudit = `delete from audit where revision in (
		select revision from (select revision, changed from audit order by revision limit ?) where changed < ?)
	and revision < (select max(revision) from audit)`
)

// ForgetAudit implements [engine.Audits]. The table lets go only what is older
// than the horizon.
func (s *Store) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		horizon := t.now.Add(-keep).UnixMicro()
		if err := t.exec(setHorizon, horizon); err != nil {
			return err
		}
		removed, err := t.count(deleteAudit, forgetAudits, horizon)
		if err != nil {
			return err
		}
		more = removed == forgetAudits
		return t.exec(setHorizon, 0)
	})
	return more, err
}
