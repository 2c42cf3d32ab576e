package shardmap

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/pgkit"
)

// A feeder keeps the index of a map current.
type feeder struct{ *Map }

// Changes are found by their transactions. The xmin of a snapshot is the oldest transaction that it
// did not see, so every later change has that number or a higher one. Rows may come twice, but none
// is missed.
const (
	feedPosition = `select pg_snapshot_xmin(pg_current_snapshot())::text`
	feedFirst    = `select ` + placementColumns + ` from shard_placements where map = $1 and key > $2 order by key limit $3`
	feedSince    = `select ` + placementColumns + ` from shard_placements where map = $1 and changed >= $2::xid8`
	listenFeed   = `select format('listen %I', 'procaas shards ' || current_schema)`
)

// pollFeed is how often changes are read without a notification.
const pollFeed = time.Second

// follow keeps the index of each map current until ctx ends.
func (s *Service) follow(ctx context.Context) {
	for told := ""; ctx.Err() == nil; {
		s.mu.RLock()
		none, again := len(s.maps) == 0, s.again
		s.mu.RUnlock()
		if none {
			select {
			case <-ctx.Done():
			case <-again:
			}
			continue
		}
		err := s.hear(ctx)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != told {
			told = err.Error()
			s.log.Warn("changes of shard maps are not heard, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollFeed):
		}
	}
}

// hear listens on one connection, which it takes out of the pool.
func (s *Service) hear(ctx context.Context) error {
	conn, err := pgkit.Take(ctx, s.pool)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := pgkit.Subscribe(ctx, conn, listenFeed); err != nil {
		return err
	}
	for {
		for _, m := range s.Maps() {
			if err := (feeder{m}).catchUp(ctx, conn); err != nil {
				return err
			}
		}
		wait, cancel := context.WithTimeout(ctx, pollFeed)
		_, err := conn.WaitForNotification(wait)
		timeout := wait.Err() != nil
		cancel()
		if err != nil && (!timeout || ctx.Err() != nil || conn.IsClosed()) {
			return err
		}
	}
}

// catchUp applies the changes since the last time.
func (m feeder) catchUp(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var next string
		if err := tx.QueryRow(ctx, feedPosition).Scan(&next); err != nil {
			return err
		}
		// The position is that of the snapshot for all reads. What commits meanwhile comes the next
		// time.
		if m.position == "" {
			if err := m.load(ctx, tx); err != nil {
				return err
			}
			m.position = next
			close(m.loaded)
			return nil
		}
		rows, err := tx.Query(ctx, feedSince, m.ID, m.position)
		if err != nil {
			return err
		}
		changes, err := pgx.CollectRows(rows, scanPlacement)
		if err != nil {
			return fmt.Errorf("map %s: changes: %w", m.ID, err)
		}
		// A part must be known before the wider placement gets its later epoch, because from then
		// on no client may be sent to the wider one.
		slices.SortStableFunc(changes, func(a, b Placement) int { return cmp.Compare(m.index.standing(a.Key), m.index.standing(b.Key)) })
		for _, p := range changes {
			m.learn(p)
		}
		m.position = next
		return nil
	})
}

// load reads all placements.
func (m feeder) load(ctx context.Context, tx pgx.Tx) error {
	for after := ""; ; {
		rows, err := tx.Query(ctx, feedFirst, m.ID, after, placementPage)
		if err != nil {
			return err
		}
		page, err := pgx.CollectRows(rows, scanPlacement)
		if err != nil {
			return fmt.Errorf("map %s: load: %w", m.ID, err)
		}
		for _, p := range page {
			if p.State == Ready {
				m.index.put(p, false)
			}
		}
		if len(page) < placementPage {
			return nil
		}
		after = page[len(page)-1].Key
	}
}

// learn adds a placement to the index. Keys whose registration is unfinished are not in it, so each
// question for them reads the database.
func (m feeder) learn(p Placement) {
	if p.State == Ready || p.State == Merged {
		m.index.put(p, true)
	}
}

// learnAsked adds what the database has returned for a key ahead of the feed, unless others may
// have been split off the key. Only the feed has both in the right order.
func (m feeder) learnAsked(key string, p Placement) {
	if p.Key == key && m.layout.parts == 1 {
		m.learn(p)
	}
}

// These read placements in pages.
const (
	placementPage = 5000
	placedHere    = `select ` + placementColumns + ` from shard_placements where map = $1 and shard = $2 and key > $3 and state = 'active'
		order by key limit $4`
)

// page lists placements of a shard, ordered by key.
func (m feeder) page(ctx context.Context, sql, shard, after string) ([]Placement, error) {
	rows, err := m.service.pool.Query(ctx, sql, m.ID, shard, after, placementPage)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanPlacement)
}
