package shardmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/preflight"
	"procaas/handlers/sharding/transfers"
)

// An enroller prepares shards for a map.
type enroller struct{ *Map }

// An Enrollment says what was found and done on a shard.
type Enrollment struct {
	Map, Shard   string
	Reasons      []string // why the shard cannot be enrolled; then nothing was changed
	Warnings     []string
	Publications []string
	Fences       int // number of created fences
}

// errTried rolls an enrollment back, because writers could not write any more.
var errTried = errors.New("writers could not write any more")

// Enroll installs the fences and publications on the master of a shard. It may be repeated, and
// must be after a change of the map's tables. If the shard does not meet the conditions, nothing is
// installed.
func (s *Service) Enroll(ctx context.Context, m *Map, shard string) (Enrollment, error) {
	return s.enroll(ctx, m, shard, func(any) error { return nil })
}

// enroll calls audit before it changes the shard, which is in another database than the audit, and
// again with the result. If the first call fails, nothing is changed.
func (s *Service) enroll(ctx context.Context, m *Map, shard string, audit func(after any) error) (Enrollment, error) {
	e := Enrollment{Map: m.ID, Shard: shard}
	pool, err := s.Connect(ctx, m, shard)
	if err != nil {
		return e, err
	}
	if err := (enroller{m}).inspect(ctx, pool, &e); err != nil || len(e.Reasons) > 0 {
		return e, enroller{m}.enrollError(shard, err)
	}
	if err := audit(map[string]any{"enrolling": true}); err != nil {
		return e, enroller{m}.enrollError(shard, err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := installFence(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, confirmMap, m.ID); err != nil {
			return err
		}
		tables := enroller{m}.preflight().Tables
		before, err := preflight.Try(ctx, tx, tables)
		if err != nil {
			return err
		}
		if err := (enroller{m}).publish(ctx, tx, &e); err != nil {
			return err
		}
		after, err := preflight.Try(ctx, tx, tables)
		if err != nil {
			return err
		}
		for i, f := range after {
			if f != nil && before[i] == nil {
				e.Reasons = append(e.Reasons, f.String())
			}
		}
		if len(e.Reasons) > 0 {
			return errTried
		}
		return nil
	})
	if errors.Is(err, errTried) {
		e.Publications = nil
		return e, enroller{m}.enrollError(shard, audit(map[string]any{"enrolled": false, "reasons": e.Reasons}))
	}
	if err == nil {
		err = enroller{m}.fenceAll(ctx, pool, shard, &e)
	}
	if err == nil {
		_, err = s.pool.Exec(ctx, openEnrolled, m.ID, shard, notEnrolled)
	}
	outcome := map[string]any{"enrolled": true, "fences": e.Fences}
	if err != nil {
		outcome = map[string]any{"enrolled": false, "error": err.Error()}
	}
	return e, enroller{m}.enrollError(shard, errors.Join(err, audit(outcome)))
}

func (m enroller) enrollError(shard string, err error) error {
	if err != nil {
		return fmt.Errorf("map %s: enroll %s: %w", m.ID, shard, err)
	}
	return nil
}

// preflight says what the map needs of a shard.
func (m enroller) preflight() preflight.Map {
	n := m.layout.publications()
	r := m.Declared.Registration
	out := preflight.Map{Stays: m.Declared.Stays, Elsewhere: m.Elsewhere(), ID: m.ID, Ints: m.layout.ints, Filtered: n > 1, TwoPhase: r != nil && r.TwoPhase}
	for bucket := range n {
		out.Publications = append(out.Publications, rowFinder{m.Map}.publication(bucket))
	}
	for _, t := range m.Declared.Tables {
		out.Tables = append(out.Tables, preflight.Table{Name: t.Table, Key: rowFinder{m.Map}.columns(t)})
	}
	return out
}

// check returns the findings of a shard. It changes nothing.
func (m enroller) check(ctx context.Context, q Querier, shard string) ([]transfers.ShardFinding, error) {
	want := m.preflight()
	if err := m.service.pool.QueryRow(ctx, readPlace, m.ID, shard).Scan(&want.Place); err != nil {
		return nil, fmt.Errorf("map %s: place of shard %s: %w", m.ID, shard, err)
	}
	facts, err := preflight.Read(ctx, q, want)
	if err != nil {
		return nil, err
	}
	found := preflight.Check(want, facts)
	// A transfer judges the server by its method, and other tables by the rows that it would leave there.
	for i, f := range found {
		listed := slices.ContainsFunc(m.Declared.Tables, func(t *language.ShardTable) bool { return t.Table == f.Table })
		found[i].StopsTransfers = listed && f.Level == transfers.FindingError
	}
	return found, nil
}

// readPlace reads -1 for a shard that a node of an older version has stored. It has no range then.
const readPlace = `select coalesce(place, -1) from shards where map = $1 and id = $2`

// TableErrors returns the findings of a preflight because of which no transfer with a shard may begin.
func (m *Map) TableErrors(ctx context.Context, shard string) (out []string, err error) {
	pool, err := m.service.Connect(ctx, m, shard)
	if err != nil {
		return nil, err
	}
	found, err := enroller{m}.check(ctx, pool, shard)
	for _, f := range found {
		if f.StopsTransfers {
			out = append(out, "shard "+shard+": "+f.String())
		}
	}
	return out, err
}

// inspect finds out why a shard cannot be enrolled.
func (m enroller) inspect(ctx context.Context, q Querier, e *Enrollment) error {
	found, err := m.check(ctx, q, e.Shard)
	for _, f := range found {
		if f.Level == transfers.FindingError {
			e.Reasons = append(e.Reasons, f.String())
		} else {
			e.Warnings = append(e.Warnings, f.String())
		}
	}
	return err
}

// identified selects the tables with primary keys. If a publication had another one, each update of
// it would fail. Keys with rows there move by lock-copy-switch, which needs no publication.
const identified = `select name from unnest($1::text[]) name
	where exists (select from pg_index i where i.indrelid = to_regclass(name) and i.indisprimary)`

const knownPublications = `select pubname::text from pg_publication where pubname = any($1)`

// publish creates the publications, or sets the tables of existing ones.
func (m enroller) publish(ctx context.Context, tx pgx.Tx, e *Enrollment) error {
	names := m.preflight().Publications
	rows, err := tx.Query(ctx, knownPublications, names)
	if err != nil {
		return err
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	listed := make([]string, len(m.Declared.Tables))
	for i, t := range m.Declared.Tables {
		listed[i] = quoteTable(t.Table)
	}
	rows, err = tx.Query(ctx, identified, listed)
	if err != nil {
		return err
	}
	published, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for bucket, name := range names {
		tables := []string{"procaas.fences"}
		for i, t := range m.Declared.Tables {
			if !slices.Contains(published, listed[i]) {
				continue
			}
			filter := ""
			if n := len(names); n > 1 {
				filter = fmt.Sprintf(" where ((%s & %d) = %d)", m.layout.hashSQL(rowFinder{m.Map}.columns(t)[0]), n-1, bucket)
			}
			tables = append(tables, listed[i]+filter)
		}
		list := strings.Join(tables, ", ")
		// Set, not add, so that a table that the map no longer names leaves it.
		sql := fmt.Sprintf("alter publication %s set table %s", quoteName(name), list)
		if !slices.Contains(known, name) {
			sql = fmt.Sprintf("create publication %s for table %s with (publish = 'insert, update, delete')", quoteName(name), list)
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("publication %s: %w", name, err)
		}
	}
	e.Publications = names
	return nil
}

const openEnrolled = `update shards set closed = null where map = $1 and id = $2 and closed = $3`

const putFences = `insert into procaas.fences (map, key, epoch, state) select $1, k, e, 'active'
	from unnest($2::text[], $3::bigint[]) u(k, e)
	on conflict do nothing`

// fenceAll creates the missing fences for what the map has on a shard.
func (m enroller) fenceAll(ctx context.Context, q Querier, shard string, e *Enrollment) error {
	for after := ""; ; {
		page, err := feeder{m.Map}.page(ctx, placedHere, shard, after)
		if err != nil || len(page) == 0 {
			return err
		}
		keys, epochs := make([]string, len(page)), make([]int64, len(page))
		for i, p := range page {
			keys[i], epochs[i] = p.Key, p.Epoch
		}
		tag, err := q.Exec(ctx, putFences, m.ID, keys, epochs)
		if err != nil {
			return err
		}
		e.Fences += int(tag.RowsAffected())
		after = keys[len(keys)-1]
	}
}

// CheckShards returns the findings of a shard, or of all shards for an empty id. It reads their
// catalogs, and changes nothing. A shard that cannot be reached is a finding.
func (s *Service) CheckShards(ctx context.Context, shardMap, id string) (transfers.ShardCheck, error) {
	out := transfers.ShardCheck{Map: shardMap, Findings: []transfers.ShardFinding{}}
	m, err := s.shardMap(shardMap)
	if err != nil {
		return out, err
	}
	if id != "" && m.Declared.Shard(id) == nil {
		return out, fmt.Errorf("map %s: %w: %q", m.ID, transfers.ErrShard, id)
	}
	for _, d := range m.Declared.Shards {
		if id != "" && d.ID != id {
			continue
		}
		var found []transfers.ShardFinding
		pool, err := s.Connect(ctx, m, d.ID)
		if err == nil {
			found, err = enroller{m}.check(ctx, pool, d.ID)
		}
		if err != nil {
			found = append(found, transfers.ShardFinding{
				Level: transfers.FindingError, Problem: "it could not be checked: " + err.Error(), Effect: "nothing is known of its tables",
				Mend: "mend the connection, or connect: in the map",
			})
		}
		for _, f := range found {
			f.Shard = d.ID
			out.Findings = append(out.Findings, f)
		}
	}
	return out, nil
}
