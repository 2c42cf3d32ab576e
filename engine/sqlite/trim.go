package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// trimRuns is how many runs one Trim reads. They share a transaction with other writes, which must
// not wait long.
const trimRuns = 200

const (
	// Each step finds the next pipeline in the index, however many runs the one before has.
	findPipelines = `with recursive p (pipeline) as (select min(pipeline) from history
		union all select (select min(h.pipeline) from history h where h.pipeline > p.pipeline) from p where p.pipeline is not null)
	select pipeline from p where pipeline is not null`
	findOld     = "select seq, id, event from history where pipeline = ? and ended <= ? order by ended limit ?"
	deletePast  = "delete from history where seq = ?"
	deleteEvent = "delete from events where source in (?, ?) and id = ? and run = ?"
	leaveAlone  = "update events set alone = 1 where source in (?, ?) and id = ? and run = ?"
	deleteAlone = `delete from events where (source, id) in
		(select source, id from events where alone = 1 and accepted <= ? order by accepted limit ?)`
	findLast = "select max(id) from events where source = ?"
)

// An oldRun is one of the first runs of a pipeline in the history.
type oldRun struct {
	seq   int64
	id    string
	event []byte
}

// Trim implements [store.Trimmer]. It deletes the id of an event together with its run, unless the run leaves before it.
func (s *Store) Trim(ctx context.Context, keep store.Retention) (more bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		gone, err := 0, error(nil)
		if !keep.Archived {
			gone, err = t.trim(keep)
		}
		if err != nil {
			return err
		}
		more = gone == trimRuns
		if keep.Keep == 0 {
			return nil
		}
		ids, err := t.count(deleteAlone, t.now.Add(-keep.Keep).UnixMicro(), trimRuns)
		more = more || ids == trimRuns
		return err
	})
	return more, err
}

// trim deletes up to trimRuns old runs, and returns their number.
func (t *tx) trim(keep store.Retention) (gone int, err error) {
	pipelines, err := rows(t, findPipelines, nil, func(r *sql.Rows) (p string, err error) { return p, r.Scan(&p) })
	for _, p := range pipelines {
		own := keep.Of(p)
		if own == 0 || gone == trimRuns {
			continue
		}
		old, err := rows(t, findOld, []any{p, t.now.Add(-own).UnixMicro(), trimRuns - gone}, scanOld)
		if err != nil {
			return gone, err
		}
		for _, o := range old {
			if err := t.forget(o, keep.Keep == 0 || own < keep.Keep); err != nil {
				return gone, err
			}
		}
		gone += len(old)
	}
	return gone, err
}

func scanOld(r *sql.Rows) (o oldRun, err error) { return o, r.Scan(&o.seq, &o.id, &o.event) }

// forget deletes a run. The id of its event goes, too, or stays alone until its own time. That of a firing goes, because a trigger
// needs no other than the last.
func (t *tx) forget(o oldRun, alone bool) error {
	if err := t.exec(deletePast, o.seq); err != nil {
		return err
	}
	ev, err := store.DecodeEvent(o.event)
	if err != nil {
		return nil // a damaged event has no id that could be deleted
	}
	id := deleteEvent
	if strings.HasPrefix(ev.Namespace(), triggers.TriggerSource) {
		// The latest event of a trigger stays, because it says when the trigger last fired.
		var last sql.NullString
		if _, err := t.row(findLast, []any{ev.Namespace()}, &last); err != nil || last.String == ev.ID {
			return err
		}
	} else if alone {
		id = leaveAlone
	}
	return t.exec(id, ev.Namespace(), emitted(ev), ev.ID, o.id)
}

const (
	findKept    = "select seq from history where pipeline = ? order by seq desc limit 1 offset ?"
	findTrimmed = "select seq, id, event from history where pipeline = ? and seq <= ? order by seq limit ?"
)

// TrimRuns implements [store.Trimmer].
func (s *Store) TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		var last int64
		if found, err := t.row(findKept, []any{pipeline, keep}, &last); err != nil || !found {
			return err
		}
		old, err := rows(t, findTrimmed, []any{pipeline, last, trimRuns}, scanOld)
		if err != nil {
			return err
		}
		for _, o := range old {
			if err := t.forget(o, true); err != nil {
				return err
			}
		}
		more = len(old) == trimRuns
		return nil
	})
	return more, err
}

const (
	findPast  = "select %s from (select * from history where pipeline = $1 and ended <= $2 order by ended limit $3) h"
	findAgain = "select seq, id, event from history where id = ? and version = ?"
)

// Past implements [store.Trimmer].
func (s *Store) Past(ctx context.Context, keep store.Retention, limit int, bytes int64) ([]store.RunRecord, error) {
	p := sqlstore.Past{Limit: limit, Bytes: bytes}
	found, err := s.read.QueryContext(ctx, findPipelines)
	if err != nil {
		return nil, err
	}
	there, err := collect(found, func(r *sql.Rows) (p string, err error) { return p, r.Scan(&p) })
	for _, pipeline := range there {
		if own := keep.Of(pipeline); err == nil && own > 0 {
			err = s.ReadPast(ctx, &p, findPast, pipeline, time.Now().Add(-own).UnixMicro())
		}
		if last, ok := keep.Last[pipeline]; err == nil && ok && len(p.Runs) == 0 {
			err = s.ReadSurplus(ctx, &p, pipeline, last)
		}
	}
	return p.Runs, err
}

// Forget implements [store.Trimmer]. The ids of events become alone, and leave with the next Trim if they are old.
func (s *Store) Forget(ctx context.Context, runs []store.RunRecord) error {
	for some := range slices.Chunk(runs, trimRuns) {
		err := s.writer.do(ctx, func(t *tx) error {
			for _, r := range some {
				var o oldRun
				found, err := t.row(findAgain, []any{r.ID, r.Version}, &o.seq, &o.id, &o.event)
				if err == nil && found {
					err = t.forget(o, true)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// emitted returns the additional place where a migration has noted the id of an event that was
// accepted before emitted events had a namespace.
func emitted(ev model.Event) string {
	ev.Inner = true
	return ev.Namespace()
}
