package sqlite

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"strconv"
	"strings"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
)

// List implements [store.Runs].
func (s *Store) List(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	from := int64(math.MaxInt64)
	if f.Oldest {
		from = 0
	}
	if f.Cursor != "" {
		var err error
		if from, err = strconv.ParseInt(f.Cursor, 36, 64); err != nil {
			return nil, "", store.ErrCursor
		}
	}
	// The sizes come first: rows are sorted with all that is in them.
	query, args := listQuery(f, from, min(max(f.Limit, 1), 1000)+1, func(choice) string { return "seq, " + rowSize })
	r, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", err
	}
	sizes, err := collect(r, func(r *sql.Rows) (size int64, err error) { return size, r.Scan(new(int64), &size) })
	if err != nil || len(sizes) == 0 {
		return nil, "", err
	}
	limit, more := f.Page(sizes)
	query, args = listQuery(f, from, limit, func(c choice) string { return c.columns })
	if r, err = s.read.QueryContext(ctx, query, args...); err != nil {
		return nil, "", err
	}
	decode := engine.DecodeEvent
	if f.Brief {
		decode = engine.DecodeBrief
	}
	all, err := collect(r, func(r *sql.Rows) (record, error) { return scanRecord(r, decode) })
	if err != nil {
		return nil, "", err
	}
	next := ""
	if more && len(all) > 0 {
		next = strconv.FormatInt(all[len(all)-1].seq, 36)
	}
	runs := make([]store.RunRecord, len(all))
	for i, r := range all {
		runs[i] = r.RunRecord
	}
	return runs, next, nil
}

// rowSize is how large a run is in the store, in bytes.
const rowSize = "length(event) + coalesce(length(checkpoint), 0)"

// listQuery builds the query of a listing. Each table is read from one end, no
// further than needed.
func listQuery(f store.RunFilter, from int64, limit int, columns func(choice) string) (string, []any) {
	page, order := "seq < ?", "desc"
	if f.Oldest {
		page, order = "seq > ?", "asc"
	}
	var parts []string
	var args []any
	for _, c := range chosen(f) {
		parts = append(parts, "select * from (select "+columns(c)+" from "+c.table+" where "+page+c.where+" order by seq "+order+" limit ?)")
		args = append(append(append(args, from), c.args...), limit)
	}
	return strings.Join(parts, " union all ") + " order by 1 " + order + " limit ?", append(args, limit)
}

// Count implements [store.Runs].
func (s *Store) Count(ctx context.Context, f store.RunFilter) ([]store.RunCount, error) {
	var parts []string
	var args []any
	for _, c := range chosen(f) {
		parts = append(parts, "select pipeline, failed_path, error_class, count(*) as n from "+c.table+" where true"+c.where+" group by 1, 2, 3")
		args = append(args, c.args...)
	}
	query := "select pipeline, failed_path, error_class, sum(n) from (" + strings.Join(parts, " union all ") +
		") group by 1, 2, 3 order by 1, 2, 3"
	r, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return collect(r, func(r *sql.Rows) (c store.RunCount, err error) {
		err = r.Scan(&c.Pipeline, &c.FailedPath, &c.ErrorClass, &c.Runs)
		return c, err
	})
}

// A choice is the rows of one table that a filter chooses.
type choice struct {
	table, columns string
	where          string // conditions, each after an "and"
	args           []any
}

func (c *choice) and(condition string, args ...any) {
	c.where += " and " + condition
	c.args = append(c.args, args...)
}

// chosen tells what a filter chooses of each table.
func chosen(f store.RunFilter) []choice {
	var both choice
	for _, c := range []struct{ column, value string }{{"pipeline", f.Pipeline}, {"flow", f.Flow}, {"key", f.Key}} {
		if c.value != "" {
			both.and(c.column+" = ?", c.value)
		}
	}
	if f.Begun {
		both.and("bundle <> ''")
	}
	if f.Fresh {
		both.and("bundle = ''")
	}
	if f.Other != "" {
		both.and("bundle not in ('', ?)", f.Other)
	}
	if f.FailedPath != "" {
		both.and("(failed_path = ? or substr(failed_path, 1, length(?)) = ?)", f.FailedPath, f.FailedPath+"/", f.FailedPath+"/")
	}
	if f.ErrorClass != "" {
		both.and("error_class like ?", classPattern(f.ErrorClass))
	}
	if f.Error != "" {
		both.and("instr(error, ?) > 0", f.Error)
	}
	if !f.Since.IsZero() {
		both.and("accepted >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		both.and("accepted < ?", f.Until.UnixMicro())
	}
	hot, past := both, both
	hot.args, past.args = slices.Clone(both.args), slices.Clone(both.args)
	hot.table, hot.columns = "runs", hotColumns
	past.table, past.columns = "history", pastColumns
	switch f.Status {
	case "":
	case model.Waiting:
		hot.and("place in ('ready', 'queued', 'scheduled', 'deferred')")
		past.and("false")
	case model.Failed:
		hot.and("place in ('blocked', 'failed')")
		past.and("false")
	case model.Running:
		hot.and("place = 'running'")
		past.and("false")
	case model.Parked:
		hot.and("place in ('parked', 'held')")
		past.and("false")
	default:
		hot.and("false")
		past.and("status = ?", f.Status)
	}
	if f.Live {
		past.and("false")
	}
	if f.LeftOut != "" {
		hot.and("false")
		past.and("left_out is not null and (instr(left_out, ?) > 0 or instr(left_out, ?) > 0)", "\n"+f.LeftOut+" ", "\n"+f.LeftOut+"/")
	}
	if f.OfErrors() {
		// Both say the same: the one is the condition of an index, the other its column.
		past.and("status <> 'succeeded' and status in ('cancelled', 'ignored')")
	}
	return []choice{hot, past}
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
