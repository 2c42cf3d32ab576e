package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// trimRuns is how many runs one Trim reads. They share a transaction with other writes, which must
// not wait long.
const trimRuns = 200

const (
	// No index is needed, because runs end roughly in the order of acceptance.
	findOldest  = "select seq, id, ended, event from history order by seq limit ?"
	deletePast  = "delete from history where seq = ?"
	deleteEvent = "delete from events where source in (?, ?) and id = ? and run = ?"
	findLast    = "select max(id) from events where source = ?"
)

// An oldRun is one of the first runs of the history.
type oldRun struct {
	seq, ended int64
	id         string
	event      []byte
}

// Trim implements [store.Trimmer]. It deletes the id of an event together with its run.
func (s *Store) Trim(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		oldest, err := rows(t, findOldest, []any{trimRuns}, func(r *sql.Rows) (o oldRun, err error) {
			return o, r.Scan(&o.seq, &o.id, &o.ended, &o.event)
		})
		if err != nil {
			return err
		}
		removed := 0
		for _, o := range oldest {
			if o.ended >= t.now.Add(-keep).UnixMicro() {
				continue
			}
			if err := t.forget(o); err != nil {
				return err
			}
			removed++
		}
		more = removed == trimRuns
		return nil
	})
	return more, err
}

func (t *tx) forget(o oldRun) error {
	if err := t.exec(deletePast, o.seq); err != nil {
		return err
	}
	ev, err := store.DecodeEvent(o.event)
	if err != nil {
		return nil // a damaged event has no id that could be deleted
	}
	if strings.HasPrefix(ev.Namespace(), triggers.TriggerSource) {
		// The latest event of a trigger stays, because it says when the trigger last fired.
		var last sql.NullString
		if _, err := t.row(findLast, []any{ev.Namespace()}, &last); err != nil || last.String == ev.ID {
			return err
		}
	}
	return t.exec(deleteEvent, ev.Namespace(), emitted(ev), ev.ID, o.id)
}

const (
	findKept    = "select seq from history where pipeline = ? order by seq desc limit 1 offset ?"
	findTrimmed = "select seq, id, ended, event from history where pipeline = ? and seq <= ? order by seq limit ?"
)

// TrimRuns implements [store.Trimmer].
func (s *Store) TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		var last int64
		if found, err := t.row(findKept, []any{pipeline, keep}, &last); err != nil || !found {
			return err
		}
		old, err := rows(t, findTrimmed, []any{pipeline, last, trimRuns}, func(r *sql.Rows) (o oldRun, err error) {
			return o, r.Scan(&o.seq, &o.id, &o.ended, &o.event)
		})
		if err != nil {
			return err
		}
		for _, o := range old {
			ev, err := store.DecodeEvent(o.event)
			if err == nil && strings.HasPrefix(ev.Namespace(), triggers.TriggerSource) {
				err = t.forget(o)
			} else {
				err = t.exec(deletePast, o.seq)
			}
			if err != nil {
				return err
			}
		}
		more = len(old) == trimRuns
		return nil
	})
	return more, err
}

// emitted returns the additional place where a migration has noted the id of an event that was
// accepted before emitted events had a namespace.
func emitted(ev model.Event) string {
	ev.Inner = true
	return ev.Namespace()
}
