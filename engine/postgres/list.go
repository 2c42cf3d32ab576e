package postgres

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/store"
)

// List implements [store.Runs].
func (s *Store) List(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	return s.list(ctx, f, "checkpoint")
}

func (s *Store) list(ctx context.Context, f store.RunFilter, checkpoint string) ([]store.RunRecord, string, error) {
	all, more, err := s.records(ctx, f, checkpoint)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if more {
		next = all[len(all)-1].cursor()
	}
	runs := make([]store.RunRecord, len(all))
	for i, r := range all {
		runs[i] = r.RunRecord
	}
	return runs, next, nil
}

// cursor is that of what follows the record in a listing.
func (r *record) cursor() string { return strconv.FormatInt(r.seq, 36) }

// ListMarked implements [store.Cell].
func (s *Store) ListMarked(ctx context.Context, f store.RunFilter) (runs []store.RunRecord, cursors []string, more bool, err error) {
	all, more, err := s.records(ctx, f, "checkpoint")
	for i, r := range all {
		if i == 0 {
			before := record{seq: r.seq + 1}
			if f.Oldest {
				before.seq = r.seq - 1
			}
			cursors = append(cursors, before.cursor())
		}
		runs, cursors = append(runs, r.RunRecord), append(cursors, r.cursor())
	}
	return runs, cursors, more, err
}

// notGone leaves out the runs that a cell has, but not of its own any more or not yet.
const notGone = "(place <> 'away' or inbox_slot(key) in (select slot from inbox_slots where state = 'frozen'))"

// records reads a page of a listing; more tells whether there is more.
func (s *Store) records(ctx context.Context, f store.RunFilter, checkpoint string) (all []record, more bool, err error) {
	from := int64(math.MaxInt64)
	if f.Oldest {
		from = 0
	}
	if f.Cursor != "" {
		var err error
		if from, err = strconv.ParseInt(f.Cursor, 36, 64); err != nil {
			return nil, false, store.ErrCursor
		}
	}
	// The sizes come first, for which no large value is read.
	var sizes []int64
	query, args := s.listQuery(f, from, min(max(f.Limit, 1), 1000)+1, func(chosen) string { return "seq, " + rowSize })
	err = s.freely(ctx, query, args, rows(&sizes, func(r pgx.CollectableRow) (size int64, err error) { return size, r.Scan(nil, &size) }))
	if err != nil || len(sizes) == 0 {
		return nil, false, err
	}
	limit, more := f.Page(sizes)
	query, args = s.listQuery(f, from, limit, func(t chosen) string { return fmt.Sprintf(t.columns, checkpoint) })
	scan := scanRecord
	if f.Brief {
		scan = scanBrief
	}
	err = s.freely(ctx, query, args, rows(&all, scan))
	return all, more && len(all) > 0, err
}

// rowSize is how large a run is in the store, in bytes.
const rowSize = "octet_length(event) + coalesce(octet_length(checkpoint), 0)"

// listQuery builds the query of a listing. Each table is read from one end, no
// further than needed.
func (s *Store) listQuery(f store.RunFilter, from int64, limit int, columns func(chosen) string) (string, []any) {
	page, order := "seq < $1", "desc"
	if f.Oldest {
		page, order = "seq > $1", "asc"
	}
	c := s.choose(f, from, limit)
	var parts []string
	for _, t := range c.tables() {
		parts = append(parts, fmt.Sprintf("(select %s from %s where %s and %s order by seq %s limit $2)",
			columns(t), t.name, page, t.where, order))
	}
	return "select * from (" + strings.Join(parts, " union all ") + ") r order by 1 " + order + " limit $2", c.args
}

// Count implements [store.Runs].
func (s *Store) Count(ctx context.Context, f store.RunFilter) ([]store.RunCount, error) {
	c := s.choose(f)
	var parts []string
	for _, t := range c.tables() {
		parts = append(parts, "select pipeline, failed_path, error_class, count(*) as n from "+t.name+" where "+t.where+" group by 1, 2, 3")
	}
	query := `select pipeline, failed_path, error_class, sum(n)::bigint from (` + strings.Join(parts, " union all ") +
		`) c group by 1, 2, 3 order by pipeline, failed_path collate "C", error_class`
	var counts []store.RunCount
	err := s.freely(ctx, query, c.args, rows(&counts, func(r pgx.CollectableRow) (n store.RunCount, err error) {
		err = r.Scan(&n.Pipeline, &n.FailedPath, &n.ErrorClass, &n.Runs)
		return n, err
	}))
	return counts, err
}

// A choice is the rows that a filter chooses, as conditions of SQL; nil when the
// table can hold none. Every argument is in those of hot.
type choice struct {
	args      []any
	hot, past []string
}

// chosen is what is chosen of one table.
type chosen struct{ name, columns, where string }

// tables lists those that may hold what is chosen.
func (c *choice) tables() []chosen {
	var all []chosen
	if c.hot != nil {
		all = append(all, chosen{"runs", hotColumns, strings.Join(c.hot, " and ")})
	}
	if c.past != nil {
		all = append(all, chosen{"history", pastColumns, strings.Join(c.past, " and ")})
	}
	return all
}

// and adds a condition; each %s stands for the number of the argument.
func (c *choice) and(condition string, arg any) {
	c.args = append(c.args, arg)
	condition = strings.ReplaceAll(condition, "%s", "$"+strconv.Itoa(len(c.args)))
	c.hot, c.past = append(c.hot, condition), append(c.past, condition)
}

// choose translates a filter, for a cell too.
func (s *Store) choose(f store.RunFilter, args ...any) *choice {
	c := choose(f, args...)
	if s.cell.Load() && c.hot != nil {
		c.hot = append(c.hot, notGone)
	}
	return c
}

// choose translates a filter. The arguments given are the first.
func choose(f store.RunFilter, args ...any) *choice {
	c := &choice{args: args, hot: []string{"true"}, past: []string{"true"}}
	for _, e := range []struct{ condition, value string }{
		{"pipeline = %s", f.Pipeline},
		{"flow = %s", f.Flow},
		{"key = %s", f.Key},
		{"(failed_path = %s or starts_with(failed_path, %s || '/'))", f.FailedPath},
		{"error_class like %s", classPattern(f.ErrorClass)},
		{"strpos(error, %s) > 0", f.Error},
	} {
		if e.value != "" {
			c.and(e.condition, e.value)
		}
	}
	if f.LeftOut != "" {
		c.and("left_out is not null and (strpos(left_out, E'\\n' || %s || ' ') > 0 or strpos(left_out, E'\\n' || %s || '/') > 0)", f.LeftOut)
	}
	if f.Begun {
		c.hot, c.past = append(c.hot, "bundle <> ''"), append(c.past, "bundle <> ''")
	}
	if f.Fresh {
		c.hot, c.past = append(c.hot, "bundle = ''"), append(c.past, "bundle = ''")
	}
	if f.Other != "" {
		c.and("bundle not in ('', %s)", f.Other)
	}
	if !f.Until.IsZero() {
		c.and("accepted < %s", f.Until)
	}
	if !f.Since.IsZero() {
		c.and("accepted >= %s", f.Since)
		// No run ends before it is accepted, so older partitions are not read.
		c.past = append(c.past, fmt.Sprintf("ended >= $%d", len(c.args)))
	}
	c.chooseStatus(f)
	if f.LeftOut != "" {
		c.hot = nil // a run that is not over may still make it up
	}
	if c.past != nil && f.OfErrors() {
		c.past = append(c.past, "status <> 'succeeded'") // for which there is an index
	}
	return c
}

func (c *choice) chooseStatus(f store.RunFilter) {
	places := map[model.Status]string{
		model.Waiting: "place in ('ready', 'queued', 'scheduled', 'deferred')",
		model.Failed:  "place in ('blocked', 'failed')",
		model.Running: "place = 'running'",
		model.Parked:  "place in ('parked', 'held')",
	}
	switch at := places[f.Status]; {
	case f.Status == "":
	case at != "":
		c.hot, c.past = append(c.hot, at), nil
	default:
		c.args = append(c.args, string(f.Status))
		n := "$" + strconv.Itoa(len(c.args))
		c.hot, c.past = append(c.hot, n+"::text is null"), append(c.past, "status = "+n)
	}
	if f.Live {
		c.past = nil
	}
}

// classPattern makes a class of errors a pattern of like. Only statuses have
// three characters.
func classPattern(class string) string {
	switch {
	case class == "status":
		return "___"
	case len(class) == 3 && class[1:] == "xx":
		return class[:1] + "__"
	}
	return class
}
