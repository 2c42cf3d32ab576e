package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const listTokens = `select s.revision, c.name, c.value, c.hash, c.revision, c.changed, c.actor, c.reason
	from settings s left join tokens c on true`

var tokenKind = settingKind{
	audit: store.AuditToken,
	find:  "select value, revision from tokens where name = $1",
	write: `insert into tokens (name, value, revision, changed, actor, reason, hash)
	values ($1, $2, $3, clock_timestamp(), $4, $5, $6)
	on conflict (name) do update set value = excluded.value, revision = excluded.revision,
	changed = excluded.changed, actor = excluded.actor, reason = excluded.reason, hash = excluded.hash`,
}

// Tokens implements [store.Tokens].
func (s *Store) Tokens(ctx context.Context) (map[string]store.Setting, int64, error) {
	return s.settings(ctx, listTokens)
}

// SetToken implements [store.Tokens].
func (s *Store) SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by store.Actor) (int64, error) {
	revision, err := s.set(ctx, tokenKind, name, value, ifRevision, by, append([]byte{}, hash...))
	if err == nil {
		s.hint(endOfQueue) // so that nodes look at once
	}
	return revision, err
}

const (
	// The row of the revision is the lock of all settings: the other statements, and the
	// time, see who came before.
	takeRevisions = "update settings set revision = revision + $1 returning revision, clock_timestamp()"
	lastAuditHash = "select coalesce((select a.hash from audit a where a.revision = s.revision - $1), '') from settings s"
	insertAudit   = `insert into audit (revision, changed, actor, reason, kind, name, before, after, hash)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	auditColumns = "revision, changed, actor, reason, kind, name, before, after, hash"
	listAudit    = "select " + auditColumns + " from audit where revision < $1"
)

// An auditEnd is where the next records of the audit go.
type auditEnd struct {
	records  int64
	revision int64 // of the last of them
	changed  time.Time
	hash     []byte // of the record before them
}

// lockAudit asks for the place of the next records, and keeps all others from changing
// settings until the transaction ends. Look at it after send.
func lockAudit(b *pgx.Batch, records int) *auditEnd {
	end := auditEnd{records: int64(records)}
	b.Queue(takeRevisions, records).QueryRow(value(&end.revision, &end.changed))
	b.Queue(lastAuditHash, records).QueryRow(value(&end.hash))
	return &end
}

// write writes the records down, as many as it was locked for.
func (end *auditEnd) write(b *pgx.Batch, records ...store.Audited) {
	for _, a := range records {
		end.records--
		a.Revision, a.Changed, a.By.Reason = end.revision-end.records, end.changed, text(a.By.Reason)
		end.hash = a.ChainHash(end.hash)
		b.Queue(insertAudit, a.Revision, a.Changed, a.By.Name, a.By.Reason, a.Kind, a.Name, blob(a.Before), a.After, end.hash)
	}
}

// audit writes changes down whose revisions nobody asks for. It takes the lock of all
// settings, so it comes last.
func (t *tx) audit(ctx context.Context, records ...store.Audited) error {
	if len(records) == 0 {
		return nil
	}
	end := lockAudit(&t.batch, len(records))
	if err := t.send(ctx); err != nil {
		return err
	}
	end.write(&t.batch, records...)
	return nil
}

// WriteAudit writes down a change as a part of the transaction that makes it, for those who keep
// tables of their own in the database of the store. It takes the lock of all settings, so it
// comes last: nothing but the commit may follow.
func WriteAudit(ctx context.Context, t pgx.Tx, a store.Audited) error {
	var lock, write pgx.Batch
	end := lockAudit(&lock, 1)
	err := t.SendBatch(ctx, &lock).Close()
	if err == nil {
		end.write(&write, a)
		err = t.SendBatch(ctx, &write).Close()
	}
	if err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	return nil
}

// Audit implements [store.Audits].
func (s *Store) Audit(ctx context.Context, f store.AuditFilter) ([]store.Audited, error) {
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
	return pgx.CollectRows(rows, scanAudited)
}

func scanAudited(r pgx.CollectableRow) (a store.Audited, err error) {
	err = r.Scan(&a.Revision, &a.Changed, &a.By.Name, &a.By.Reason, &a.Kind, &a.Name, &a.Before, &a.After, &a.Hash)
	a.Changed = a.Changed.UTC()
	return a, err
}

const (
	readAuditBase = "select s.audit_base, s.audit_base_hash, (select count(*) from audit where revision <= s.audit_base), s.revision from settings s"
	readAudit     = "select " + auditColumns + ` from audit
	where revision > greatest($1, (select audit_base from settings)) order by revision limit $2`

	// auditPage is how many records are read at once. They are not kept.
	auditPage = 500
)

// VerifyAudit implements [store.Audits].
func (s *Store) VerifyAudit(ctx context.Context, kept []string) ([]store.AuditChain, error) {
	check := store.NewAuditCheck(kept)
	for {
		read, before := 0, check
		err := s.tx(ctx, func(t *tx) error {
			var base store.AuditLink
			var older int
			var last int64
			check, read, t.snapshot = before, 0, true // records may be removed between two pages
			t.queue(readAuditBase).QueryRow(func(r pgx.Row) error {
				err := r.Scan(&base.Revision, &base.Hash, &older, &last)
				check.From(base, older, last)
				return err
			})
			t.queue(readAudit, check.At(), auditPage).Query(func(rows pgx.Rows) error {
				for ; rows.Next(); read++ {
					a, err := scanAudited(rows)
					if err != nil {
						return err
					}
					check.Add(a)
				}
				return rows.Err()
			})
			return t.send(ctx)
		})
		if err != nil {
			return nil, fmt.Errorf("verify the audit: %w", err)
		}
		if read < auditPage {
			return []store.AuditChain{check.End()}, nil
		}
	}
}

// forgetAudits is how many audit records one ForgetAudit removes.
const forgetAudits = 1000

const (
	setHorizon = "select set_config('procaas.forget_before', (clock_timestamp() - $1 * interval '1 microsecond')::text, true)"
	// All that it reads but the last: that one stays, whatever comes behind it. Up to the
	// first that is young, though a later one may be older by a clock that was set back.
	deleteAudit = `with oldest as materialized (
		select revision, changed, hash, lead(revision) over (order by revision) is null as last
		from (select revision, changed, hash from audit order by revision limit $1) o),
	young as (select min(revision) as first from oldest where last or changed >= current_setting('procaas.forget_before')::timestamptz),
	removed as (select revision, hash from oldest where revision < (select first from young) order by revision desc),
	kept as (update settings set audit_base = revision_removed, audit_base_hash = hash_removed
		from (select revision as revision_removed, hash as hash_removed from removed limit 1) r where revision_removed > audit_base)
	delete from audit where revision = any (array (select revision from removed))`
)

// ForgetAudit implements [store.Audits]. The table lets go only what is older
// than the horizon.
func (s *Store) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.tx(ctx, func(t *tx) error {
		more = false
		mine, err := t.tryLock(ctx, trimLock)
		if err != nil || !mine {
			return err
		}
		t.queue(setHorizon, keep.Microseconds())
		t.queue(deleteAudit, forgetAudits+1).Exec(func(c pgconn.CommandTag) error { more = c.RowsAffected() == forgetAudits; return nil })
		return t.commit(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("forget audit records: %w", err)
	}
	return more, nil
}
