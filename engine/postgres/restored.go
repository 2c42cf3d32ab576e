package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// This file notices a database that was restored from a backup. Its tables say on which server, and
// on which branch of its log, nodes last wrote. A dump is restored on another server. A recovery
// to a point in time begins another branch, as does each promotion of a standby. But a standby runs
// while nodes write, and a restored server is started after their last sign.

// An origin is a server, and a branch of its log. It is zero if the server does not say so.
type origin struct{ system, timeline int64 }

func (s *server) origin() origin {
	if s.timeline == 0 {
		return origin{}
	}
	return origin{s.system, s.timeline}
}

// An incarnation is that of the store that a process works with, and where it is.
type incarnation struct {
	mu      sync.Mutex // guards the following
	id      string     // of the incarnation, as it was when the store was opened
	now     origin     // when a node last asked
	written origin     // where a node of this process has renewed its lease
}

const (
	readIncarnation = "select id::text, system, timeline from incarnation"
	writeOrigin     = "update incarnation set system = $1, timeline = $2 where (system, timeline) <> ($1, $2)"
	writeAdopted    = "update incarnation set id = gen_random_uuid(), system = $1, timeline = $2"
	readLastSign    = "select max(seen) from leases"
)

// same reads where nodes last wrote. The error is [store.ErrAdopted] if the store has another incarnation than this process knows.
func (i *incarnation) same(ctx context.Context, q querier) (was origin, err error) {
	var id string
	if err := q.QueryRow(ctx, readIncarnation).Scan(&id, &was.system, &was.timeline); err != nil {
		return was, err
	}
	return was, i.is(id)
}

// is returns [store.ErrAdopted] if the store has another incarnation than this process knows.
func (i *incarnation) is(id string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id == "" {
		i.id = id
	}
	if i.id != id {
		return fmt.Errorf("%w: %w", store.ErrLost, store.ErrAdopted)
	}
	return nil
}

// confirm notes the server that a node is about to renew its lease on. If the node has renewed it there before, and misses nothing,
// the store has not been restored but has failed over. id and was are what the store says.
func (i *incarnation) confirm(ctx context.Context, c *pgxpool.Conn, id string, was origin, s server) error {
	if err := i.is(id); err != nil {
		return err
	}
	i.mu.Lock()
	i.now = s.origin()
	moved := i.now != was && i.now == i.written && i.now != origin{}
	i.mu.Unlock()
	if !moved {
		return nil
	}
	_, err := c.Exec(ctx, writeOrigin, s.system, s.timeline)
	return err
}

// renewed notes that a node has renewed its lease.
func (i *incarnation) renewed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.written = i.now
}

// recognize refuses a database that was restored and not adopted.
func (s *Store) recognize(ctx context.Context) error {
	return s.db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		at, why, seen, err := s.db.restored(ctx, c)
		if err == nil {
			err = store.Refused(why, seen)
		}
		if err == nil && at != (origin{}) {
			_, err = c.Exec(ctx, writeOrigin, at.system, at.timeline)
		}
		return err
	})
}

// restored compares where nodes last wrote with where the store is. why is empty if it was not restored, as far as one can tell.
func (d *database) restored(ctx context.Context, c *pgxpool.Conn) (at origin, why string, seen time.Time, err error) {
	s, err := d.acked.checkPrimary(ctx, c.Conn())
	if err != nil {
		return at, "", seen, err
	}
	was, err := d.inc.same(ctx, c)
	if err != nil {
		return at, "", seen, err
	}
	var last *time.Time
	if err := c.QueryRow(ctx, readLastSign).Scan(&last); err != nil {
		return at, "", seen, err
	}
	at = s.origin()
	switch {
	case at == origin{}, was == origin{}, at == was, last == nil:
		return at, "", seen, nil
	case at.system != was.system:
		why = fmt.Sprintf("nodes wrote on the server with the identifier %d, and this one has %d, as after restoring a dump", was.system, at.system)
	case !s.started.After(*last):
		return at, "", seen, nil
	default:
		why = fmt.Sprintf("nodes wrote on timeline %d, and this server is on %d and was started at %s, as after a recovery to a point in time",
			was.timeline, at.timeline, s.started.UTC().Format(time.RFC3339))
	}
	return at, why, *last, nil
}

// Adopt accepts a store that was restored, so that nodes start with it. Nodes that worked with what was there before end. It returns what
// will be repeated. With preview, it changes nothing, and neither does it if nodes do not refuse the store. triggers is the prefix of the
// sources of triggers.
func (s *Store) Adopt(ctx context.Context, triggers string, preview bool, by store.Actor) (r store.Restored, err error) {
	var at origin
	var why string
	err = s.db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		at, why, _, err = s.db.restored(ctx, c)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("adopt: %w", err)
	}
	r, err = s.Repeats(ctx, why, triggers)
	if err == nil && why != "" && !preview {
		err = s.db.Write(ctx, func(t sqlstore.Tx) error {
			t.Queue(writeAdopted, []any{at.system, at.timeline})
			return sqlstore.AuditAdopted(ctx, t, r, by)
		})
	}
	if err != nil {
		err = fmt.Errorf("adopt: %w", err)
	}
	return r, err
}
