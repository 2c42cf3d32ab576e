package sqlite

import (
	"context"
	"database/sql"
	"math"
	"time"

	"procaas/engine/store"
)

const listTokens = "select name, value, hash, revision, changed, actor, reason from tokens"

var tokenKind = settingKind{
	audit: store.AuditToken,
	find:  "select value, revision from tokens where name = ?",
	write: `insert into tokens (name, value, revision, changed, actor, reason, hash) values (?, ?, ?, ?, ?, ?, ?)
	on conflict (name) do update set value = excluded.value, revision = excluded.revision,
	changed = excluded.changed, actor = excluded.actor, reason = excluded.reason, hash = excluded.hash`,
}

// Tokens implements [store.Tokens].
func (s *Store) Tokens(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listTokens)
}

// SetToken implements [store.Tokens].
func (s *Store) SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by store.Actor) (int64, error) {
	return s.set(ctx, tokenKind, name, value, ifRevision, by, append([]byte{}, hash...))
}

const (
	insertAudit   = "insert into audit (" + auditColumns + ") values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
	auditColumns  = "revision, changed, actor, reason, kind, name, before, after, hash"
	listAudit     = "select " + auditColumns + " from audit where revision < ?"
	lastRevision  = "select coalesce((select seq from sqlite_sequence where name = 'audit'), 0)"
	lastAuditHash = "select hash from audit where revision = ?"
)

// audit writes down a change, and so gives the settings their next revision.
func (t *tx) audit(a store.Audited) (revision int64, err error) {
	var before []byte
	if _, err = t.row(lastRevision, nil, &revision); err != nil {
		return 0, err
	}
	if _, err = t.row(lastAuditHash, []any{revision}, &before); err != nil {
		return 0, err
	}
	a.Revision, a.Changed = revision+1, t.now
	return a.Revision, t.exec(insertAudit, a.Revision, a.Changed.UnixMicro(), a.By.Name, a.By.Reason, a.Kind, a.Name, blob(a.Before),
		a.After, a.ChainHash(before))
}

// Audit implements [store.Audits].
func (s *Store) Audit(ctx context.Context, f store.AuditFilter) ([]store.Audited, error) {
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
	return collect(r, scanAudited)
}

func scanAudited(r *sql.Rows) (a store.Audited, err error) {
	var changed sql.NullInt64
	err = r.Scan(&a.Revision, &changed, &a.By.Name, &a.By.Reason, &a.Kind, &a.Name, &a.Before, &a.After, &a.Hash)
	a.Changed = fromMicros(changed)
	return a, err
}

const (
	readAuditBase = "select base, base_hash, (select count(*) from audit where revision <= base) from audit_horizon"
	readAudit     = "select " + auditColumns + " from audit where revision > ? order by revision"
)

// VerifyAudit implements [store.Audits].
func (s *Store) VerifyAudit(ctx context.Context, kept []string) ([]store.AuditChain, error) {
	// One transaction, so that nothing is removed meanwhile.
	t, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer t.Rollback()
	var base store.AuditLink
	var older int
	var last int64
	if err := t.QueryRowContext(ctx, readAuditBase).Scan(&base.Revision, &base.Hash, &older); err != nil {
		return nil, err
	}
	if err := t.QueryRowContext(ctx, lastRevision).Scan(&last); err != nil {
		return nil, err
	}
	r, err := t.QueryContext(ctx, readAudit, base.Revision)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	check := store.NewAuditCheck(kept)
	check.From(base, older, last)
	for r.Next() {
		a, err := scanAudited(r)
		if err != nil {
			return nil, err
		}
		check.Add(a)
	}
	return []store.AuditChain{check.End()}, r.Err()
}

// forgetAudits is how many audit records one ForgetAudit removes.
const forgetAudits = 1000

const (
	setHorizon = "update audit_horizon set forget_before = ?"
	// The last record that may go: all that it reads but the last, up to the first that is young,
	// though a later one may be older by a clock that was set back.
	lastToForget = `with oldest as materialized (
		select revision, changed, hash, lead(revision) over (order by revision) is null as last
		from (select revision, changed, hash from audit order by revision limit ?))
	select revision, hash from oldest where revision < (select min(revision) from oldest where last or changed >= ?)
	order by revision desc limit 1`
	moveBase    = "update audit_horizon set base = ?1, base_hash = ?2 where base < ?1"
	deleteAudit = "delete from audit where revision <= ?"
)

// ForgetAudit implements [store.Audits]. The table lets go only what is older
// than the horizon.
func (s *Store) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		horizon := t.now.Add(-keep).UnixMicro()
		var last store.AuditLink
		found, err := t.row(lastToForget, []any{forgetAudits + 1, horizon}, &last.Revision, &last.Hash)
		if err != nil || !found {
			return err
		}
		if err := t.exec(setHorizon, horizon); err != nil {
			return err
		}
		if err := t.exec(moveBase, last.Revision, last.Hash); err != nil {
			return err
		}
		removed, err := t.count(deleteAudit, last.Revision)
		if err != nil {
			return err
		}
		more = removed == forgetAudits
		return t.exec(setHorizon, 0)
	})
	return more, err
}
