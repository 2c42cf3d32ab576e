package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"procaas/engine/model"
	"procaas/engine/store"
)

// List implements [store.Runs].
func (m *Store) List(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := slices.Clone(m.order)
	if !f.Oldest {
		slices.Reverse(rows)
	}
	if f.Cursor != "" {
		seq, err := strconv.Atoi(f.Cursor)
		if err != nil {
			return nil, "", store.ErrCursor
		}
		rows = slices.DeleteFunc(rows, func(r *memoryRun) bool { return f.Oldest && r.seq <= seq || !f.Oldest && r.seq >= seq })
	}
	rows = slices.DeleteFunc(rows, func(r *memoryRun) bool { return !r.isChosen(f) })
	var sizes []int64
	for _, r := range rows[:min(len(rows), 1001)] {
		sizes = append(sizes, int64(len(r.row)+len(r.checkpoint)))
	}
	n, more := f.Page(sizes)
	var out []store.RunRecord
	for _, r := range rows[:n] {
		found := m.record(r)
		found.Place = strconv.Itoa(r.seq)
		if f.Brief {
			found.Event.Payload = nil
		}
		out = append(out, found)
	}
	if more {
		return out, strconv.Itoa(rows[n-1].seq), ctx.Err()
	}
	return out, "", ctx.Err()
}

// Count implements [store.Runs].
func (m *Store) Count(ctx context.Context, f store.RunFilter) ([]store.RunCount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[store.RunCount]int{}
	for _, r := range m.order {
		if r.isChosen(f) {
			counts[store.RunCount{Pipeline: r.pipeline, FailedPath: r.failedPath, ErrorClass: r.class}]++
		}
	}
	var out []store.RunCount
	for c, n := range counts {
		c.Runs = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b store.RunCount) int {
		return cmp.Or(cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.FailedPath, b.FailedPath), cmp.Compare(a.ErrorClass, b.ErrorClass))
	})
	return out, ctx.Err()
}

// CountBundles implements [store.Runs].
func (m *Store) CountBundles(ctx context.Context) (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, r := range m.order {
		if r.bundle != "" && (!r.status.Ended() || r.status == model.Failed) {
			counts[r.bundle]++
		}
	}
	return counts, ctx.Err()
}

// isChosen reports whether a filter chooses a run.
func (r *memoryRun) isChosen(f store.RunFilter) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.Pipeline, r.pipeline) && is(f.Flow, r.Flow) && is(f.Key, r.Key) && r.hasLabels(f.Labels) &&
		is(f.Bundle, r.bundle) && is(string(f.Status), string(r.status)) &&
		(!f.Live || !r.status.Ended() || r.status == model.Failed) && (!f.Begun || r.bundle != "") && (!f.Fresh || r.bundle == "") &&
		(f.Text == "" || bytes.Contains(r.row, []byte(f.Text))) && (!f.Awaits || r.status == model.Parked && len(r.awaits) > 0) &&
		(f.Other == "" || r.bundle != "" && r.bundle != f.Other) &&
		(!f.NotUndone || r.status == model.Failed && model.IsUndo(r.failedPath)) &&
		(f.LeftOut == "" || r.status == model.Succeeded && model.HasLeftOut(r.leftOut, f.LeftOut, f.LeftBy)) &&
		(is(f.FailedPath, r.failedPath) || strings.HasPrefix(r.failedPath, f.FailedPath+"/")) &&
		(f.ErrorClass == "" || model.IsOfClass(r.class, f.ErrorClass)) && strings.Contains(r.failure, f.Error) &&
		(f.Since.IsZero() || !r.accepted.Before(f.Since)) && (f.Until.IsZero() || r.accepted.Before(f.Until)) &&
		(f.FailedSince.IsZero() || r.status == model.Failed && !r.ended.Before(f.FailedSince))
}

// hasLabels reports whether a run has all labels of a filter.
func (r *memoryRun) hasLabels(filter string) bool {
	labels := model.StoredLabels(r.Event.Labels)
	return !slices.ContainsFunc(model.LabelParts(filter), func(part string) bool { return !strings.Contains(labels, part) })
}
