package cells

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Runs joins the runs of all cells, and changes runs where they are.
type runs struct{ *members }

// Run implements [store.Runs].
func (s runs) Run(ctx context.Context, id string) (store.RunRecord, error) {
	r, _, err := s.find(ctx, id)
	return r, err
}

// Newer implements [store.Runs]. Runs of a cell that is away are missing. Of a run in two cells, it returns the record that has the
// end of the run, or that of the cell in the map.
func (s runs) Newer(ctx context.Context, of []store.Seen) ([]store.RunRecord, error) {
	parts := s.live()
	found, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) ([]store.RunRecord, error) { return db.Runs.Newer(ctx, of) })
	var out []store.RunRecord
	taken := map[string]bool{}
	for i, news := range found {
		for _, r := range news {
			if !taken[r.ID] && (s.partOf(r.Key) == parts[i] || r.Status.Ended()) {
				taken[r.ID] = true
				r.Node = s.homeAt(ctx, parts[i], r.Node)
				out = append(out, r)
			}
		}
	}
	return out, trouble(parts, errs)
}

// A page is where a listing goes on in each cell, by number. Cells that have no more runs are left out.
type page map[int]string

// List implements [store.Runs], in the order of acceptance. Runs of a cell that is away are missing.
func (s runs) List(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
	asked, from := s.parts, page{}
	if f.Cursor != "" {
		var err error
		if from, err = readPage(f.Cursor); err != nil {
			return nil, "", err
		}
		asked = slices.DeleteFunc(slices.Clone(s.parts), func(p *part) bool { _, ok := from[p.number]; return !ok })
	}
	type listing struct {
		runs    []store.RunRecord
		cursors []string
		more    bool
	}
	all, errs := eachCell(ctx, asked, func(p *part, db *store.Cell) (l listing, err error) {
		f := f
		f.Cursor = from[p.number]
		l.runs, l.cursors, l.more, err = db.Marked.ListMarked(ctx, f)
		return l, err
	})
	if err := trouble(asked, errs); err != nil {
		return nil, "", err
	}
	limit := min(max(f.Limit, 1), 1000)
	at := make([]int, len(asked))
	place := func() string {
		next := page{}
		for i, p := range asked {
			if l := all[i]; len(l.runs) > 0 && (at[i] < len(l.runs) || l.more) {
				next[p.number] = l.cursors[at[i]]
			}
		}
		return next.String()
	}
	var out []store.RunRecord
	listed := map[string]bool{}
	for len(out) < limit {
		best, cut := -1, false
		for i := range asked {
			cut = cut || at[i] == len(all[i].runs) && all[i].more // the next run of this cell may come first
			if at[i] < len(all[i].runs) && (best < 0 || comesFirst(f, &all[i].runs[at[i]], &all[best].runs[at[best]])) {
				best = i
			}
		}
		if best < 0 || cut {
			break
		}
		r := all[best].runs[at[best]]
		at[best]++
		if !listed[r.ID] { // a run that moves may be in two cells
			listed[r.ID] = true
			r.Node = s.homeAt(ctx, asked[best], r.Node)
			r.Place = place()
			out = append(out, r)
		}
	}
	return out, place(), nil
}

// comesFirst orders runs of two cells.
func comesFirst(f store.RunFilter, a, b *store.RunRecord) bool {
	c := cmp.Or(a.Accepted.Compare(b.Accepted), cmp.Compare(a.ID, b.ID))
	return f.Oldest && c < 0 || !f.Oldest && c > 0
}

// String writes a cursor. It is empty at the end.
func (p page) String() string {
	if len(p) == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(model.EncodeJSON(p))
}

func readPage(cursor string) (p page, err error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || len(p) == 0 {
		return nil, store.ErrCursor
	}
	return p, nil
}

// Count implements [store.Runs].
func (s runs) Count(ctx context.Context, f store.RunFilter) ([]store.RunCount, error) {
	all, err := ask(ctx, s.directory, func(db *store.Cell) ([]store.RunCount, error) { return db.Runs.Count(ctx, f) })
	sums := map[store.RunCount]int{}
	for _, c := range slices.Concat(all...) {
		n := c.Runs
		c.Runs = 0
		sums[c] += n
	}
	var out []store.RunCount
	for c, n := range sums {
		c.Runs = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b store.RunCount) int {
		return cmp.Or(cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.FailedPath, b.FailedPath), cmp.Compare(a.ErrorClass, b.ErrorClass))
	})
	return out, err
}

// CountBundles implements [store.Runs].
func (s runs) CountBundles(ctx context.Context) (map[string]int, error) {
	all, err := ask(ctx, s.directory, func(db *store.Cell) (map[string]int, error) { return db.Runs.CountBundles(ctx) })
	sums := map[string]int{}
	for _, counts := range all {
		for hash, n := range counts {
			sums[hash] += n
		}
	}
	return sums, err
}

// latest is the number of runs that an entity shows.
const latest = 50

// Entity implements [store.Runs]. Runs that ended in another cell stay there.
func (s runs) Entity(ctx context.Context, flow, key string) (store.EntityRecord, error) {
	e, err := use(ctx, s.partOf(key), func(db *store.Cell) (store.EntityRecord, error) { return db.Runs.Entity(ctx, flow, key) })
	if err == nil {
		e.Runs, _, err = s.List(ctx, store.RunFilter{Flow: flow, Key: key, Limit: latest, Brief: true})
	}
	for i := range e.Runs {
		e.Runs[i].Checkpoint = nil
	}
	return e, err
}

// The bounds of waiting for a slot that moves. A part of a move usually takes less, and people do not wait longer.
const (
	steerWait  = 5 * time.Second
	steerPause = 20 * time.Millisecond
)

// steer changes a run in its cell. It waits for a run that moves, and follows a run that has moved since it was found.
func (s runs) steer(ctx context.Context, id string, do func(*store.Cell) error) error {
	for began := time.Now(); ; {
		_, p, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		err = p.use(ctx, do)
		moves := errors.Is(err, store.ErrMoving) || errors.Is(err, store.ErrNotFound)
		if !moves || time.Since(began) > steerWait || !clock.Pause(ctx, steerPause) {
			return err
		}
		if _, err := s.refresh(ctx); err != nil {
			return err
		}
	}
}

// Retry implements [store.Runs].
func (s runs) Retry(ctx context.Context, id string, by store.Actor) error {
	return s.steer(ctx, id, func(db *store.Cell) error { return db.Runs.Retry(ctx, id, by) })
}

// Cancel implements [store.Runs].
func (s runs) Cancel(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	return s.steer(ctx, id, func(db *store.Cell) error { return db.Runs.Cancel(ctx, id, by, tell) })
}

// MakeUp implements [store.Runs]. A run goes on in the cell in which it ended.
func (s runs) MakeUp(ctx context.Context, m store.MakeUp, by store.Actor) error {
	return s.steer(ctx, m.Run, func(db *store.Cell) error { return db.Runs.MakeUp(ctx, m, by) })
}

// Undo implements [store.Runs].
func (s runs) Undo(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	return s.steer(ctx, id, func(db *store.Cell) error { return db.Runs.Undo(ctx, id, by, tell) })
}

// Move implements [store.Runs].
func (s runs) Move(ctx context.Context, m store.Move, version int64, by store.Actor) (asked bool, err error) {
	err = s.steer(ctx, m.Run, func(db *store.Cell) (err error) {
		asked, err = db.Runs.Move(ctx, m, version, by)
		return err
	})
	return asked, err
}

// WakeRun implements [store.Runs].
func (s runs) WakeRun(ctx context.Context, run string) error {
	return s.steer(ctx, run, func(db *store.Cell) error { return db.Runs.WakeRun(ctx, run) })
}

// Release implements [store.Runs].
func (s runs) Release(ctx context.Context, cause string, limit int) (released int, err error) {
	for i, p := range s.parts {
		if released == limit {
			break
		}
		n, err := use(ctx, p, func(db *store.Cell) (int, error) { return db.Runs.Release(ctx, cause, limit-released) })
		released += n
		if err != nil && i == 0 {
			return released, err
		}
	}
	return released, nil
}

// Each cell counts the revisions of its audit records for itself. Of a cell other than the home, they have its number above these
// bits, so that a page of the audit knows where to go on.
const cellBits = 48

// Audit implements [store.Audits]. The change of a run is recorded where the run is, so the records of all cells are joined by
// their times.
func (s runs) Audit(ctx context.Context, f store.AuditFilter) ([]store.Audited, error) {
	until := f.Until
	at, before := int(f.Before>>cellBits), f.Before&(1<<cellBits-1)
	if f.Before > 0 && at < len(s.parts) {
		last, err := use(ctx, s.parts[at], func(db *store.Cell) ([]store.Audited, error) {
			return db.Audits.Audit(ctx, store.AuditFilter{Before: before + 1, Limit: 1})
		})
		if err != nil {
			return nil, err
		}
		if len(last) > 0 && (until.IsZero() || last[0].Changed.Before(until)) {
			until = last[0].Changed
		}
	}
	all, errs := eachCell(ctx, s.parts, func(p *part, db *store.Cell) ([]store.Audited, error) {
		f := f
		f.Before = 0
		if at == p.number {
			f.Before = before
		} else {
			f.Until = until
		}
		records, err := db.Audits.Audit(ctx, f)
		for i := range records {
			records[i].Revision |= int64(p.number) << cellBits
		}
		return records, err
	})
	out := slices.Concat(all...)
	slices.SortStableFunc(out, func(a, b store.Audited) int { return b.Changed.Compare(a.Changed) })
	return out[:min(len(out), f.Limit)], trouble(s.parts, errs)
}

// VerifyAudit implements [store.Audits]. Each cell has a chain. All cells must answer, except removed ones.
func (s runs) VerifyAudit(ctx context.Context, kept []string) (out []store.AuditChain, err error) {
	parts := s.live()
	all, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) ([]store.AuditChain, error) { return db.Audits.VerifyAudit(ctx, kept) })
	for i, chains := range all {
		for _, c := range chains {
			c.Cell = parts[i].name
			out = append(out, c)
		}
	}
	return out, errors.Join(errs...)
}

// tidy deletes a bounded part in all cells. More reports that there may be more in one of them.
func (s runs) tidy(ctx context.Context, do func(*store.Cell) (bool, error)) (more bool, err error) {
	all, err := ask(ctx, s.directory, do)
	return slices.Contains(all, true), err
}

// ForgetAudit implements [store.Audits].
func (s runs) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	return s.tidy(ctx, func(db *store.Cell) (bool, error) { return db.Audits.ForgetAudit(ctx, keep) })
}

// Trim implements [store.Trimmer].
func (s runs) Trim(ctx context.Context, r store.Retention) (more bool, err error) {
	return s.tidy(ctx, func(db *store.Cell) (bool, error) { return db.Trimmer.Trim(ctx, r) })
}

// TrimRuns implements [store.Trimmer]. Each cell keeps so many runs.
func (s runs) TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	return s.tidy(ctx, func(db *store.Cell) (bool, error) { return db.Trimmer.TrimRuns(ctx, pipeline, keep) })
}

// Past implements [store.Trimmer]. Each cell has a page. A run may be in two cells while it moves, but ended runs stay where they are.
func (s runs) Past(ctx context.Context, r store.Retention, limit int, bytes int64) ([]store.RunRecord, error) {
	all, err := ask(ctx, s.directory, func(db *store.Cell) ([]store.RunRecord, error) {
		return db.Trimmer.Past(ctx, r, limit, bytes/int64(len(s.parts)))
	})
	return slices.Concat(all...), err
}

// Forget implements [store.Trimmer]. Each cell forgets those that it has.
func (s runs) Forget(ctx context.Context, gone []store.RunRecord) error {
	_, err := ask(ctx, s.directory, func(db *store.Cell) (any, error) { return nil, db.Trimmer.Forget(ctx, gone) })
	return err
}
