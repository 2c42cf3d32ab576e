package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"procaas/engine/store"
)

const (
	// In PostgreSQL, the row of the revision is the lock of all settings. The later statements,
	// including the time, see all earlier changes.
	takeRevisions = "{take revisions}"
	// The last record is never removed.
	lastAuditHash = "select hash from audit order by revision desc limit 1"
	insertAudit   = "insert into audit (" + auditColumns + ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
	auditColumns  = "revision, changed, actor, reason, kind, name, before, after, hash"
	listAudit     = "select " + auditColumns + " from audit where revision < $1"
)

// An auditEnd is the place of the next records of the audit.
type auditEnd struct {
	records  int64
	revision int64 // revision of the last of them
	changed  any   // as the database represents it
	time     time.Time
	hash     []byte // of the record before them
}

// lockAudit reserves the place of the next records. No other transaction can change settings until
// this one ends. Read the result after Send.
func lockAudit(t Statements, records int) *auditEnd {
	end := auditEnd{records: int64(records)}
	t.Queue(takeRevisions, []any{records}, &end.revision, &end.changed)
	t.Queue(lastAuditHash, nil, &end.hash)
	return &end
}

// write writes the reserved number of records.
func (end *auditEnd) write(t Statements, records ...store.Audited) {
	_ = at(&end.time).Scan(end.changed) // it is a time
	for _, a := range records {
		end.records--
		a.Revision, a.Changed, a.By.Reason = end.revision-end.records, end.time, Text(a.By.Reason)
		end.hash = a.ChainHash(end.hash)
		t.Queue(insertAudit, []any{a.Revision, end.changed, a.By.Name, a.By.Reason, a.Kind, a.Name, Blob(a.Before), a.After, end.hash})
	}
}

// Audit writes records whose revisions the caller does not need. It takes the lock of all settings,
// so call it last.
func Audit(ctx context.Context, t Statements, records ...store.Audited) error {
	if len(records) == 0 {
		return nil
	}
	end := lockAudit(t, len(records))
	if err := t.Send(ctx); err != nil {
		return err
	}
	end.write(t, records...)
	return nil
}

// Audit implements [store.Audits].
func (s *Store) Audit(ctx context.Context, f store.AuditFilter) (found []store.Audited, err error) {
	before := int64(math.MaxInt64)
	if f.Before > 0 {
		before = f.Before
	}
	query, args := listAudit, []any{before}
	and := func(condition string, arg any) {
		args = append(args, arg)
		query += " and " + numbered(condition, len(args))
	}
	if f.Kind != "" {
		and("kind = %s", f.Kind)
	}
	if f.Name != "" {
		and(below("name"), f.Name)
	}
	if f.By != "" {
		and("actor = %s", f.By)
	}
	if !f.Since.IsZero() {
		and("changed >= %s", s.db.At(f.Since))
	}
	if !f.Until.IsZero() {
		and("changed < %s", s.db.At(f.Until))
	}
	err = s.db.Read(ctx, query+fmt.Sprintf(" order by revision desc limit %d", f.Limit), args, func(r Row) error {
		a, err := scanAudited(r)
		found = append(found, a)
		return err
	})
	return found, err
}

func scanAudited(r Row) (a store.Audited, err error) {
	return a, r.Scan(&a.Revision, at(&a.Changed), &a.By.Name, &a.By.Reason, &a.Kind, &a.Name, &a.Before, &a.After, &a.Hash)
}

const (
	readAuditBase = "select s.{base}, s.{base hash}, (select count(*) from audit where revision <= s.{base}), {last revision} from " +
		"{horizon} s"
	readAudit = "select " + auditColumns + ` from audit
	where revision > $1 and revision > (select {base} from {horizon}) order by revision limit $2`

	// auditPage is how many records are read at once.
	auditPage = 500
)

// VerifyAudit implements [store.Audits].
func (s *Store) VerifyAudit(ctx context.Context, kept []string) ([]store.AuditChain, error) {
	check := store.NewAuditCheck(kept)
	for {
		read, before := 0, check
		err := s.db.Snapshot(ctx, func(t Reader) error { // records may be removed between two pages
			check, read = before, 0
			t.Query(readAuditBase, nil, func(r Row) error {
				var base store.AuditLink
				var older int
				var last int64
				err := r.Scan(&base.Revision, &base.Hash, &older, &last)
				check.From(base, older, last)
				return err
			})
			t.Query(readAudit, []any{check.At(), auditPage}, func(r Row) error {
				a, err := scanAudited(r)
				check.Add(a)
				read++
				return err
			})
			return t.Send(ctx)
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
	setHorizon = "{set horizon}"
	// What may go: the records up to the first young one, but never the last one that is no trim. A
	// later record may be older if the clock was set back. Records of trims alone are no reason for
	// another trim, which would add one more.
	lastToForget = `with oldest as materialized (
		select revision, changed, kind, hash from audit order by revision limit $1),
	gone as materialized (
		select revision, changed, kind, hash from oldest where revision < (select coalesce(min(revision), 0) from oldest
			where changed >= {now} - $2 * {micro} or revision = (select max(revision) from audit where kind <> 'trim')
				or revision = (select max(revision) from oldest)))
	select revision, hash, (select max(changed) from gone), (select count(*) from gone) from gone
	where exists (select 1 from gone where kind <> 'trim') or (select count(*) from gone) = $1 - 1 order by revision desc limit 1`
	moveBase    = "update {horizon} set {base} = $1, {base hash} = $2 where {base} < $1"
	deleteAudit = "delete from audit where revision <= $1"
)

// ForgetAudit implements [store.Audits]. The table only releases records older than the horizon.
func (s *Store) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.db.Write(ctx, func(t Tx) error {
		more = false
		if alone, err := t.Alone(ctx); err != nil || !alone {
			return err
		}
		var last store.AuditLink
		trim := store.AuditedTrim{Retention: keep.String()}
		var newest any
		found := t.Queue(lastToForget, []any{forgetAudits + 1, keep.Microseconds()}, &last.Revision, &last.Hash, &newest, &trim.Removed)
		if err := t.Send(ctx); err != nil || found.Rows == 0 {
			return err
		}
		if err := at(&trim.Newest).Scan(newest); err != nil {
			return err
		}
		trim.UpTo, trim.Hash = last.Revision, hex.EncodeToString(last.Hash)
		if err := Audit(ctx, t, trim.Trimmed()); err != nil {
			return err
		}
		t.Queue(setHorizon, []any{keep.Microseconds()})
		t.Queue(moveBase, []any{last.Revision, last.Hash})
		gone := t.Queue(deleteAudit, []any{last.Revision})
		t.Queue("{end horizon}", nil)
		err := t.Send(ctx)
		more = gone.Rows == forgetAudits
		return err
	})
	if err != nil {
		return false, fmt.Errorf("forget audit records: %w", err)
	}
	return more, nil
}

// HorizonVersion is the version of the schema from which trims are records. See [AdoptHorizon].
const HorizonVersion = 78

// A Horizon has the statements by which [AdoptHorizon] reads and writes the tables of one database.
type Horizon struct {
	Read  string // returns the revision and the hash of the last removed record, the revision of the last record, and the time
	Count string // sets the revision of the last record; empty if the database does
}

// AdoptHorizon is the migration from releases that removed old audit records without a record of
// it: it adds that record to the chain. From then on, a chain that begins behind a removed record
// without such a record is broken.
func AdoptHorizon(ctx context.Context, t *sql.Tx, h Horizon) error {
	var base store.AuditLink
	var last int64
	var now any
	if err := t.QueryRowContext(ctx, h.Read).Scan(&base.Revision, &base.Hash, &last, &now); err != nil {
		return fmt.Errorf("read the horizon of the audit: %w", err)
	}
	if len(base.Hash) == 0 {
		return nil
	}
	hash := base.Hash
	if err := t.QueryRowContext(ctx, lastAuditHash).Scan(&hash); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read the last audit record: %w", err)
	}
	a := store.AuditedTrim{UpTo: base.Revision, Hash: hex.EncodeToString(base.Hash), Adopted: true}.Trimmed()
	a.Revision = last + 1
	if err := at(&a.Changed).Scan(now); err != nil {
		return err
	}
	_, err := t.ExecContext(ctx, insertAudit, a.Revision, now, a.By.Name, a.By.Reason, a.Kind, a.Name, nil, a.After, a.ChainHash(hash))
	if err == nil && h.Count != "" {
		_, err = t.ExecContext(ctx, h.Count, a.Revision)
	}
	if err != nil {
		return fmt.Errorf("record the horizon of the audit: %w", err)
	}
	return nil
}
