package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"procaas/engine/store"
)

// This file reads runs that may leave the store, for an archive.

// A Past is a page of such runs while it fills.
type Past struct {
	Limit int   // the most runs
	Bytes int64 // the most bytes of their events and checkpoints; one run may have more
	Runs  []store.RunRecord
}

// IsFull reports whether the page takes no more runs.
func (p *Past) IsFull() bool { return len(p.Runs) >= p.Limit || p.Bytes <= 0 && len(p.Runs) > 0 }

// ReadPast adds to a page the runs of the history that a query finds, up to its bounds. The query has %s for its columns, and its
// last argument is its limit, which ReadPast adds.
func (s *Store) ReadPast(ctx context.Context, p *Past, query string, args ...any) error {
	if p.IsFull() {
		return nil
	}
	// The sizes come first, so that no more runs are read than there is room for.
	var sizes []int64
	err := browse(ctx, s.db, &sizes, fmt.Sprintf(query, rowSize), append(slices.Clip(args), p.Limit-len(p.Runs)), func(r Row) (n int64, err error) {
		return n, r.Scan(&n)
	})
	if err != nil || len(sizes) == 0 {
		return err
	}
	n := 0
	for n < len(sizes) && (p.Bytes >= sizes[n] || n == 0 && len(p.Runs) == 0) {
		p.Bytes -= sizes[n]
		n++
	}
	if n < len(sizes) {
		p.Bytes = 0
	}
	if n == 0 {
		return nil
	}
	var all []Record
	err = browse(ctx, s.db, &all, fmt.Sprintf(query, fmt.Sprintf(pastColumns, checkpoint)), append(slices.Clip(args), n), func(r Row) (Record, error) {
		return scanRecord(r, store.DecodeEvent)
	})
	for _, r := range all {
		p.Runs = append(p.Runs, r.RunRecord)
	}
	return err
}

const findSurplus = `select %s from (select * from history where pipeline = $1 and seq <= (
	select seq from history where pipeline = $1 order by seq desc limit 1 offset $2) order by seq limit $3) h`

// ReadSurplus adds to a page the runs of a pipeline that are older than the last ones that it keeps.
func (s *Store) ReadSurplus(ctx context.Context, p *Past, pipeline string, last int) error {
	return s.ReadPast(ctx, p, findSurplus, pipeline, last)
}
