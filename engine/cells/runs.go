package cells

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/engine/store"
)

// find reads a run, and tells in which cell it is. While its slot moves, two cells may
// have it: that one counts which the map names.
func (s *Store) find(ctx context.Context, id string) (store.RunRecord, *part, error) {
	all := s.live()
	parts := all
	if p, ok := s.owned.Load(id); ok {
		parts = []*part{p.(*part)}
	}
	for {
		found, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) (store.RunRecord, error) { return db.Runs.Run(ctx, id) })
		at, failed := -1, error(nil)
		for i, err := range errs {
			switch {
			case err == nil && (at < 0 || s.partOf(found[i].Key) == parts[i]):
				at = i
			case err != nil && !errors.Is(err, store.ErrNotFound):
				failed = err
			}
		}
		switch {
		case at >= 0:
			r := found[at]
			r.Node = s.homeAt(ctx, parts[at], r.Node)
			return r, parts[at], nil
		case failed != nil:
			return store.RunRecord{}, nil, failed
		case len(parts) == len(all):
			return store.RunRecord{}, nil, store.ErrNotFound
		}
		parts = all
	}
}

// Run implements [store.Runs].
func (s *Store) Run(ctx context.Context, id string) (store.RunRecord, error) {
	r, _, err := s.find(ctx, id)
	return r, err
}

// Newer implements [store.Runs]. What a cell that is away has is missing. Of a run that is in two
// cells that one counts which the map names, or which has its end.
func (s *Store) Newer(ctx context.Context, of []store.Seen) ([]store.RunRecord, error) {
	parts := s.live()
	found, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) ([]store.RunRecord, error) { return db.Runs.Newer(ctx, of) })
	var out []store.RunRecord
	taken := map[string]bool{}
	for i, news := range found {
		for _, r := range news {
			if taken[r.ID] || s.partOf(r.Key) != parts[i] && !r.Status.Ended() {
				continue
			}
			taken[r.ID] = true
			r.Node = s.homeAt(ctx, parts[i], r.Node)
			out = append(out, r)
		}
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, store.ErrAway) {
			return out, err
		}
	}
	return out, nil
}

// A page is where each cell goes on in a listing: the cells by number, what has ended is
// left out.
type page map[int]string

// List implements [store.Runs]. Runs of several cells come in the order of the times of
// acceptance. What a cell that is away has is missing.
func (s *Store) List(ctx context.Context, f store.RunFilter) ([]store.RunRecord, string, error) {
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
	for i, err := range errs {
		if err != nil && (asked[i].number == 0 || !errors.Is(err, store.ErrAway)) {
			return nil, "", err
		}
	}
	limit, next := min(max(f.Limit, 1), 1000), page{}
	at := make([]int, len(asked))
	var out []store.RunRecord
	listed := map[string]bool{}
	for len(out) < limit {
		best, cut := -1, false
		for i := range asked {
			cut = cut || at[i] == len(all[i].runs) && all[i].more // what follows there may come first
			if at[i] < len(all[i].runs) && (best < 0 || comesFirst(f, &all[i].runs[at[i]], &all[best].runs[at[best]])) {
				best = i
			}
		}
		if best < 0 || cut {
			break
		}
		r := all[best].runs[at[best]]
		at[best]++
		if !listed[r.ID] { // on its way, a run may be in two
			listed[r.ID] = true
			r.Node = s.homeAt(ctx, asked[best], r.Node)
			out = append(out, r)
		}
	}
	for i, p := range asked {
		switch l := all[i]; {
		case at[i] == len(l.runs) && !l.more:
		case len(l.runs) > 0:
			next[p.number] = l.cursors[at[i]]
		}
	}
	if len(next) == 0 {
		return out, "", nil
	}
	return out, next.String(), nil
}

// comesFirst orders runs of two cells.
func comesFirst(f store.RunFilter, a, b *store.RunRecord) bool {
	c := cmp.Or(a.Accepted.Compare(b.Accepted), cmp.Compare(a.ID, b.ID))
	return f.Oldest && c < 0 || !f.Oldest && c > 0
}

// String writes a cursor.
func (p page) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("cells: " + err.Error()) // plain data always encodes
	}
	return base64.RawURLEncoding.EncodeToString(text)
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
func (s *Store) Count(ctx context.Context, f store.RunFilter) ([]store.RunCount, error) {
	all, err := ask(ctx, s, func(db *store.Cell) ([]store.RunCount, error) { return db.Runs.Count(ctx, f) })
	if err != nil {
		return nil, err
	}
	sums := map[store.RunCount]int{}
	for _, counts := range all {
		for _, c := range counts {
			n := c.Runs
			c.Runs = 0
			sums[c] += n
		}
	}
	var out []store.RunCount
	for c, n := range sums {
		c.Runs = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b store.RunCount) int {
		return cmp.Or(cmp.Compare(a.Pipeline, b.Pipeline), cmp.Compare(a.FailedPath, b.FailedPath), cmp.Compare(a.ErrorClass, b.ErrorClass))
	})
	return out, nil
}

// CountBundles implements [store.Runs].
func (s *Store) CountBundles(ctx context.Context) (map[string]int, error) {
	all, err := ask(ctx, s, func(db *store.Cell) (map[string]int, error) { return db.Runs.CountBundles(ctx) })
	sums := map[string]int{}
	for _, counts := range all {
		for hash, n := range counts {
			sums[hash] += n
		}
	}
	return sums, err
}

// latest is how many runs an entity shows.
const latest = 50

// Entity implements [store.Runs].
func (s *Store) Entity(ctx context.Context, flow, key string) (store.EntityRecord, error) {
	p := s.partOf(key)
	db, err := p.cell()
	if err != nil {
		return store.EntityRecord{}, err
	}
	e, err := db.Runs.Entity(ctx, flow, key)
	if err != nil {
		return e, p.heed(ctx, err)
	}
	// Runs that ended in another cell stay there.
	if e.Runs, _, err = s.List(ctx, store.RunFilter{Flow: flow, Key: key, Limit: latest, Brief: true}); err != nil {
		return e, err
	}
	for i := range e.Runs {
		e.Runs[i].Checkpoint = nil
	}
	return e, nil
}

// The bounds of waiting for a run whose slot moves: a part of a move is over sooner as a
// rule, and people who wait for an answer give up later.
const (
	steerWait  = 5 * time.Second
	steerPause = 20 * time.Millisecond
)

// steer lets the cell of a run change it. It waits for one that moves, and follows one
// that has moved since it was found.
func (s *Store) steer(ctx context.Context, id string, do func(*store.Cell) error) error {
	for began := time.Now(); ; {
		_, p, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		db, err := p.cell()
		if err == nil {
			err = p.heed(ctx, do(db))
		}
		moves := errors.Is(err, store.ErrMoving) || errors.Is(err, store.ErrNotFound)
		if !moves || time.Since(began) > steerWait {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(steerPause):
		}
		if _, err := s.refresh(ctx); err != nil {
			return err
		}
	}
}

// Retry implements [store.Runs].
func (s *Store) Retry(ctx context.Context, id string, by store.Actor) error {
	return s.steer(ctx, id, func(store *store.Cell) error { return store.Runs.Retry(ctx, id, by) })
}

// Cancel implements [store.Runs].
func (s *Store) Cancel(ctx context.Context, id string, by store.Actor) error {
	return s.steer(ctx, id, func(store *store.Cell) error { return store.Runs.Cancel(ctx, id, by) })
}

// MakeUp implements [store.Runs]. A run goes on in the cell in which it has ended.
func (s *Store) MakeUp(ctx context.Context, m store.MakeUp, by store.Actor) error {
	return s.steer(ctx, m.Run, func(store *store.Cell) error { return store.Runs.MakeUp(ctx, m, by) })
}

// Undo implements [store.Runs].
func (s *Store) Undo(ctx context.Context, id string, by store.Actor) error {
	return s.steer(ctx, id, func(store *store.Cell) error { return store.Runs.Undo(ctx, id, by) })
}

// Move implements [store.Runs].
func (s *Store) Move(ctx context.Context, m store.Move, version int64, by store.Actor) (asked bool, err error) {
	err = s.steer(ctx, m.Run, func(store *store.Cell) (err error) {
		asked, err = store.Runs.Move(ctx, m, version, by)
		return err
	})
	return asked, err
}

// Release implements [store.Runs].
func (s *Store) Release(ctx context.Context, cause string, limit int) (released int, err error) {
	for i, p := range s.parts {
		if released == limit {
			break
		}
		store, err := p.cell()
		if err != nil {
			continue
		}
		n, err := store.Runs.Release(ctx, cause, limit-released)
		if released += n; err != nil && i == 0 {
			return released, err
		}
		_ = p.heed(ctx, err) // notes a cell that is away
	}
	return released, nil
}

// Records of the audit that are in another cell than the home have its number above these
// bits of their revisions: cells count their revisions each for itself, and a revision is
// what a page of the audit goes on from.
const cellBits = 48

// Audit implements [store.Audits]. What operators do to runs is written where the runs
// are, so the records of all cells are joined by their times.
func (s *Store) Audit(ctx context.Context, f store.AuditFilter) ([]store.Audited, error) {
	until := f.Until
	at, before := int(f.Before>>cellBits), f.Before&(1<<cellBits-1)
	if f.Before > 0 && at < len(s.parts) {
		db, err := s.parts[at].cell()
		if err != nil {
			return nil, err
		}
		last, err := db.Audits.Audit(ctx, store.AuditFilter{Before: before + 1, Limit: 1})
		if err != nil {
			return nil, s.parts[at].heed(ctx, err)
		}
		if len(last) > 0 && (until.IsZero() || last[0].Changed.Before(until)) {
			until = last[0].Changed
		}
	}
	all, errs := eachCell(ctx, s.parts, func(p *part, db *store.Cell) ([]store.Audited, error) {
		f := f
		f.Before = 0
		switch {
		case at == p.number:
			f.Before = before
		default:
			f.Until = until
		}
		records, err := db.Audits.Audit(ctx, f)
		for i := range records {
			records[i].Revision |= int64(p.number) << cellBits
		}
		return records, err
	})
	var out []store.Audited
	for i, err := range errs {
		if err != nil && (i == 0 || !errors.Is(err, store.ErrAway)) {
			return nil, fmt.Errorf("audit of cell %s: %w", s.parts[i].name, err)
		}
		out = append(out, all[i]...)
	}
	slices.SortStableFunc(out, func(a, b store.Audited) int { return b.Changed.Compare(a.Changed) })
	return out[:min(len(out), f.Limit)], nil
}

// VerifyAudit implements [store.Audits]. Each cell has a chain of its own. All cells
// must be there, but those that were removed from the inbox.
func (s *Store) VerifyAudit(ctx context.Context, kept []string) ([]store.AuditChain, error) {
	parts := s.live()
	all, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) ([]store.AuditChain, error) { return db.Audits.VerifyAudit(ctx, kept) })
	var out []store.AuditChain
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("audit of cell %s: %w", parts[i].name, err)
		}
		for _, c := range all[i] {
			c.Cell = parts[i].name
			out = append(out, c)
		}
	}
	return out, nil
}
