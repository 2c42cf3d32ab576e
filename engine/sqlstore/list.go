package sqlstore

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"procaas/engine/model"
	"procaas/engine/store"
)

// List implements [store.Runs].
func (s *Store) List(ctx context.Context, f store.RunFilter) (runs []store.RunRecord, next string, err error) {
	all, more, err := s.Records(ctx, f)
	for _, r := range all {
		r.Place = r.Cursor()
		runs = append(runs, r.RunRecord)
	}
	if more {
		next = all[len(all)-1].Cursor()
	}
	return runs, next, err
}

// Records reads a page of a listing. more reports whether there is another.
func (s *Store) Records(ctx context.Context, f store.RunFilter) (all []Record, more bool, err error) {
	return s.records(ctx, f, checkpoint)
}

func (s *Store) records(ctx context.Context, f store.RunFilter, checkpoint string) (all []Record, more bool, err error) {
	from := int64(math.MaxInt64)
	if f.Oldest {
		from = 0
	}
	if f.Cursor != "" {
		if from, err = strconv.ParseInt(f.Cursor, 36, 64); err != nil {
			return nil, false, store.ErrCursor
		}
	}
	// The sizes come first, because sorting rows moves all of their data, and sizes need no large
	// values.
	var sizes []int64
	query, args := s.listQuery(f, from, min(max(f.Limit, 1), 1000)+1, func(chosen) string { return "seq, " + rowSize })
	if query == "" {
		return nil, false, nil
	}
	err = browse(ctx, s.db, &sizes, query, args, func(r Row) (size int64, err error) { return size, r.Scan(new(int64), &size) })
	if err != nil || len(sizes) == 0 {
		return nil, false, err
	}
	limit, more := f.Page(sizes)
	query, args = s.listQuery(f, from, limit, func(t chosen) string { return fmt.Sprintf(t.columns, checkpoint) })
	decode := store.DecodeEvent
	if f.Brief {
		decode = store.DecodeBrief
	}
	err = browse(ctx, s.db, &all, query, args, func(r Row) (Record, error) { return scanRecord(r, decode) })
	return all, more && len(all) > 0, err
}

// browse reads all rows of a query that is planned for its arguments.
func browse[T any](ctx context.Context, db DB, into *[]T, query string, args []any, scan func(Row) (T, error)) error {
	return db.Browse(ctx, func(t Reader) error {
		*into = nil
		t.Query(query, args, func(r Row) error {
			v, err := scan(r)
			*into = append(*into, v)
			return err
		})
		return t.Send(ctx)
	})
}

// rowSize is the size of a run in the store, in bytes.
const rowSize = "{bytes}(event) + coalesce({bytes}(checkpoint), 0)"

// listQuery builds the query of a listing. It is empty if nothing can match. Each table is read
// from one end, and no further than needed.
func (s *Store) listQuery(f store.RunFilter, from int64, limit int, columns func(chosen) string) (string, []any) {
	page, order := "seq < $1", "desc"
	if f.Oldest {
		page, order = "seq > $1", "asc"
	}
	c := s.choose(f, from, limit)
	var parts []string
	for _, t := range c.tables() {
		parts = append(parts, fmt.Sprintf("select * from (select %s from %s where %s and %s order by seq %s limit $2) %s",
			columns(t), t.name, page, t.where, order, t.name))
	}
	if len(parts) == 0 {
		return "", nil
	}
	return "select * from (" + strings.Join(parts, " union all ") + ") r order by 1 " + order + " limit $2", c.args
}

// Count implements [store.Runs].
func (s *Store) Count(ctx context.Context, f store.RunFilter) (counts []store.RunCount, err error) {
	c := s.choose(f)
	var parts []string
	for _, t := range c.tables() {
		parts = append(parts, "select pipeline, failed_path, error_class, count(*) as n from "+t.name+" where "+t.where+" group by 1, 2, 3")
	}
	if len(parts) == 0 {
		return nil, nil
	}
	query := `select pipeline, failed_path, error_class, cast(sum(n) as bigint) from (` + strings.Join(parts, " union all ") +
		`) c group by 1, 2, 3 order by pipeline, failed_path {bytewise}, error_class`
	err = browse(ctx, s.db, &counts, query, c.args, func(r Row) (n store.RunCount, err error) {
		return n, r.Scan(&n.Pipeline, &n.FailedPath, &n.ErrorClass, &n.Runs)
	})
	return counts, err
}

const countBundles = "select bundle, count(*) from runs where bundle <> '' and bundle not like '%+%' group by bundle"

// CountBundles implements [store.Runs].
func (s *Store) CountBundles(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	var rows []struct{} // without runs that were just handed out with a choice of two versions
	err := browse(ctx, s.db, &rows, countBundles, nil, func(r Row) (none struct{}, err error) {
		var hash string
		var n int
		err = r.Scan(&hash, &n)
		counts[hash] = n
		return none, err
	})
	return counts, err
}

// A choice has the SQL conditions of a filter for each table. Nil means that a table can have no
// match.
type choice struct {
	args      []any
	hot, past []string
}

// chosen is the part of a choice for one table.
type chosen struct{ name, columns, where string }

// tables lists the tables that may have matches.
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

// and adds a condition, in which each %s becomes the number of the argument.
func (c *choice) and(condition string, arg any) {
	c.args = append(c.args, arg)
	c.both(numbered(condition, len(c.args)))
}

// both adds a condition for both tables.
func (c *choice) both(condition string) {
	c.hot, c.past = append(c.hot, condition), append(c.past, condition)
}

// numbered inserts the number of an argument into a condition.
func numbered(condition string, n int) string {
	return strings.ReplaceAll(condition, "%s", "$"+strconv.Itoa(n))
}

// below returns the condition that a path equals another one or is below it.
func below(column string) string {
	return "(" + column + " = %s or substr(" + column + ", 1, length(%s) + 1) = %s || '/')"
}

// ofAnyFlow names all flows of a table, so that a key can be looked up in the index of flows and keys. It steps from one
// flow to the next.
func ofAnyFlow(table string) string {
	return strings.ReplaceAll(`flow {any of} (with recursive f (flow) as (select min(flow) from TABLE
		union all select (select min(flow) from TABLE where flow > f.flow) from f where flow is not null)
		select flow from f where flow is not null))`, "TABLE", table)
}

// choose translates a filter. The given arguments come first.
func (s *Store) choose(f store.RunFilter, args ...any) *choice {
	c := &choice{args: args, hot: []string{"true"}, past: []string{"true"}}
	for _, e := range []struct{ condition, value string }{
		{"pipeline = %s", f.Pipeline},
		{"key = %s", f.Key},
		{below("failed_path"), f.FailedPath},
		{"error_class like %s", classPattern(f.ErrorClass)},
		{"{position}(error, %s) > 0", f.Error},
		{"bundle = %s", f.Bundle},
		{"bundle not in ('', %s)", f.Other},
	} {
		if e.value != "" {
			c.and(e.condition, e.value)
		}
	}
	switch {
	case f.Flow != "" && f.Key != "":
		c.and("flow = %s", f.Flow)
	case f.Flow != "":
		c.and("{walk}flow = %s", f.Flow)
	case f.Key != "":
		c.hot, c.past = append(c.hot, ofAnyFlow("runs")), append(c.past, ofAnyFlow("history"))
	}
	if f.Begun {
		c.both("bundle <> ''")
	}
	if f.Fresh {
		c.both("bundle = ''")
	}
	if !f.Until.IsZero() {
		c.and("accepted < %s", s.db.At(f.Until))
	}
	if !f.Since.IsZero() {
		c.and("accepted >= %s", s.db.At(f.Since))
		// No run ends before it is accepted, so older partitions need not be read.
		c.past = append(c.past, fmt.Sprintf("ended >= $%d", len(c.args)))
	}
	if !f.FailedSince.IsZero() {
		c.and("ended >= %s", s.db.At(f.FailedSince))
		c.hot = append(c.hot, "place in ('blocked', 'failed')")
		c.past = nil // runs that have ended for good are not failed
	}
	if f.NotUndone {
		// An index has the failed runs, which are few. Only a compensation has a path of four parts.
		c.hot = append(c.hot, "place in ('blocked', 'failed')", "failed_path like '%/%/%"+model.UndoPath+"'")
		c.past = nil
	}
	if f.Text != "" {
		c.and("{find bytes}(event, %s) > 0", []byte(f.Text))
	}
	if f.Awaits {
		c.hot, c.past = append(c.hot, "place = 'parked' and {listens}"), nil
	}
	for _, part := range model.LabelParts(f.Labels) {
		c.and("labels is not null and {position}(labels, %s) > 0", part)
	}
	if f.LeftBy != "" {
		c.and("left_out is not null and {position}(left_out, %s) > 0", "\n"+f.LeftOut+" "+f.LeftBy)
		c.hot = nil
	} else if f.LeftOut != "" {
		c.and("left_out is not null and ({position}(left_out, %s || ' ') > 0 or {position}(left_out, %s || '/') > 0)", "\n"+f.LeftOut)
		c.hot = nil // an unfinished run may still make up for it
	}
	c.chooseStatus(f)
	if listed := s.db.Listed(); listed != "" && c.hot != nil {
		c.hot = append(c.hot, listed)
	}
	if c.past != nil && f.OfErrors() {
		// Both say the same. One is the condition of an index, the other its column.
		c.past = append(c.past, "status <> 'succeeded' and status in ('cancelled', 'ignored')")
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
	switch place := places[f.Status]; {
	case f.Status == "":
	case place == "":
		c.args = append(c.args, string(f.Status))
		c.hot, c.past = nil, append(c.past, "status = $"+strconv.Itoa(len(c.args)))
	default:
		c.past = nil
		if c.hot != nil {
			c.hot = append(c.hot, place)
		}
	}
	if f.Live {
		c.past = nil
	}
}

// classPattern converts a class of errors to a like pattern. Only statuses have three characters.
func classPattern(class string) string {
	switch {
	case class == "status":
		return "___"
	case len(class) == 3 && class[1:] == "xx":
		return class[:1] + "__"
	}
	return class
}
