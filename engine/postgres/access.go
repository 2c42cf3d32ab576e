package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine"
)

const listTokens = `select s.revision, c.name, c.value, c.hash, c.revision, c.changed, c.actor, c.reason
	from settings s left join tokens c on true`

var tokenKind = settingKind{
	audit: engine.AuditToken,
	find:  "select value, revision from tokens where name = $1",
	write: `insert into tokens (name, value, revision, changed, actor, reason, hash)
	values ($1, $2, $3, clock_timestamp(), $4, $5, $6)
	on conflict (name) do update set value = excluded.value, revision = excluded.revision,
	changed = excluded.changed, actor = excluded.actor, reason = excluded.reason, hash = excluded.hash`,
}

// Tokens implements [engine.Tokens].
func (s *Store) Tokens(ctx context.Context) (map[string]engine.Setting, int64, error) {
	return s.settings(ctx, listTokens)
}

// SetToken implements [engine.Tokens].
func (s *Store) SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by engine.Actor) (int64, error) {
	revision, err := s.set(ctx, tokenKind, name, value, ifRevision, by, append([]byte{}, hash...))
	if err == nil {
		s.hint(endOfQueue) // so that nodes look at once
	}
	return revision, err
}

const (
	insertAudit = `insert into audit (revision, changed, actor, reason, kind, name, before, after)
	values ($1, clock_timestamp(), $2, $3, $4, $5, $6, $7)`
	// It takes the revision in the same statement. The row of the revision is a
	// lock, so it comes last.
	insertNextAudit = "with next as (" + nextRevision + `) insert into audit (revision, changed, actor, reason, kind, name, before, after)
	select revision, clock_timestamp(), $1, $2, $3, $4, $5, $6 from next`
	listAudit = `select revision, changed, actor, reason, kind, name, before, after from audit where revision < $1`
)

// audit writes down a change.
func (t *tx) audit(a engine.Audited) {
	t.queue(insertAudit, a.Revision, a.By.Name, text(a.By.Reason), a.Kind, a.Name, blob(a.Before), a.After)
}

// auditNext writes down a change whose revision nobody asks for.
func (t *tx) auditNext(a engine.Audited) {
	t.queue(insertNextAudit, a.By.Name, text(a.By.Reason), a.Kind, a.Name, blob(a.Before), a.After)
}

// WriteAudit writes down a change as a part of the transaction that makes it, for those who keep
// tables of their own in the database of the store. It takes the lock of all settings, so it
// comes last: nothing but the commit may follow.
func WriteAudit(ctx context.Context, t pgx.Tx, a engine.Audited) error {
	_, err := t.Exec(ctx, insertNextAudit, a.By.Name, text(a.By.Reason), a.Kind, a.Name, blob(a.Before), a.After)
	if err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	return nil
}

// Audit implements [engine.Audits].
func (s *Store) Audit(ctx context.Context, f engine.AuditFilter) ([]engine.Audited, error) {
	before := int64(math.MaxInt64)
	if f.Before > 0 {
		before = f.Before
	}
	query, args := listAudit, []any{before}
	and := func(condition string, with any) {
		args = append(args, with)
		query += " and " + strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(args)))
	}
	if f.Kind != "" {
		and("kind = ?", f.Kind)
	}
	if f.Name != "" {
		and("(name = ? or starts_with(name, ? || '/'))", f.Name)
	}
	if f.By != "" {
		and("actor = ?", f.By)
	}
	if !f.Since.IsZero() {
		and("changed >= ?", f.Since)
	}
	if !f.Until.IsZero() {
		and("changed < ?", f.Until)
	}
	rows, err := s.pool.Query(ctx, query+fmt.Sprintf(" order by revision desc limit %d", f.Limit), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (a engine.Audited, err error) {
		err = r.Scan(&a.Revision, &a.Changed, &a.By.Name, &a.By.Reason, &a.Kind, &a.Name, &a.Before, &a.After)
		a.Changed = a.Changed.UTC()
		return a, err
	})
}

// forgetAudits is how many audit records one ForgetAudit removes.
const forgetAudits = 1000

const (
	setHorizon = "select set_config('procaas.forget_before', (clock_timestamp() - $1 * interval '1 microsecond')::text, true)"
	// Revisions grow with time, but for those of transactions that wait for each other.
	deleteAudit = `delete from audit where revision in (
		select revision from (select revision, changed from audit order by revision limit $1) oldest
		where changed < current_setting('procaas.forget_before')::timestamptz)
	and revision < (select max(revision) from audit)`
)

// ForgetAudit implements [engine.Audits]. The table lets go only what is older
// than the horizon.
func (s *Store) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.tx(ctx, func(t *tx) error {
		more = false
		mine, err := t.tryLock(ctx, trimLock)
		if err != nil || !mine {
			return err
		}
		t.queue(setHorizon, keep.Microseconds())
		t.queue(deleteAudit, forgetAudits).Exec(func(c pgconn.CommandTag) error { more = c.RowsAffected() == forgetAudits; return nil })
		return t.commit(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("forget audit records: %w", err)
	}
	return more, nil
}
