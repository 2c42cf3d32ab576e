package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"procaas/engine/store"
)

// Nodes lock the row of a limit before they touch the rows of its values. So their answers are in one order, and the number of
// rows is exact.
const (
	addLimit    = "insert into limits_by_value (path, held, away) values ($1, 0, 0) on conflict do nothing"
	lockLimit   = "select held, away from limits_by_value where path = $1 {lock}"
	setLimit    = "update limits_by_value set held = $2, away = $3 where path = $1"
	dropLimit   = "delete from limits_by_value where path = $1 and held = 0 and away <= $2"
	listLimits  = "select path, held from limits_by_value order by path"
	presentTime = "select {now}"

	forgetBuckets = `delete from limit_buckets where (path, value) in (
	select path, value from limit_buckets where path = $1 and until <= $2 order by until limit $3)`
	findBucket = "select due, away, step from limit_buckets where path = $1 and value = $2"
	setBucket  = `insert into limit_buckets (path, value, due, away, step, until) values ($1, $2, $3, $4, $5, $6)
	on conflict (path, value) do update set due = excluded.due, away = excluded.away, step = excluded.step, until = excluded.until`
)

// sweptAtOnce is how many rows of a limit one transaction removes, besides twice those that it may add.
const sweptAtOnce = 1000

// A limitTx is a transaction for one limit, whose row it has locked.
type limitTx struct {
	t       Tx
	path    string
	now     int64
	room    store.LimitRoom
	buckets map[string]*store.TokenBucket
}

// lock locks a limit, and removes rows that no longer count.
func (l *limitTx) lock(ctx context.Context, sweep int) error {
	var now time.Time
	l.t.Queue(addLimit, []any{l.path})
	l.t.Queue(lockLimit, []any{l.path}, &l.room.Rows, &l.room.Away)
	l.t.Queue(presentTime, nil, at(&now))
	if err := l.t.Send(ctx); err != nil {
		return err
	}
	l.now = now.UnixNano()
	gone := l.t.Queue(forgetBuckets, []any{l.path, l.now, sweep})
	if err := l.t.Send(ctx); err != nil {
		return err
	}
	l.room.Rows -= int(gone.Rows)
	return nil
}

// read reads the buckets of the values that requests are about.
func (l *limitTx) read(ctx context.Context, asks []store.TokenAsk) error {
	l.buckets = map[string]*store.TokenBucket{}
	results := map[string]*Result{}
	for i := range asks {
		value := asks[i].Value
		if l.buckets[value] != nil {
			continue
		}
		b := &store.TokenBucket{}
		l.buckets[value] = b
		results[value] = l.t.Queue(findBucket, []any{l.path, []byte(value)}, &b.Due, &b.Away, &b.Step)
	}
	if err := l.t.Send(ctx); err != nil {
		return err
	}
	for value, r := range results {
		if r.Rows == 0 {
			l.buckets[value] = nil
		}
	}
	return nil
}

// answer answers a request.
func (l *limitTx) answer(a *store.TokenAsk, rows int) store.Token {
	b := l.buckets[a.Value]
	switch {
	case b != nil:
		return b.Answer(a, l.now)
	case a.Back != 0:
		return store.Token{} // its bucket is full again
	case l.room.Rows >= rows:
		return l.room.Turn(a, rows, l.now)
	}
	l.room.Rows++
	b = &store.TokenBucket{}
	l.buckets[a.Value] = b
	return b.Answer(a, l.now)
}

// save writes what has changed.
func (l *limitTx) save(ctx context.Context) error {
	for _, value := range slices.Sorted(maps.Keys(l.buckets)) {
		if b := l.buckets[value]; b != nil {
			l.t.Queue(setBucket, []any{l.path, []byte(value), b.Due, b.Away, b.Step, b.Until()})
		}
	}
	l.t.Queue(setLimit, []any{l.path, l.room.Rows, l.room.Away})
	return l.t.Send(ctx)
}

// TakeTokens implements [store.Limits]. It locks limits in the order of their paths, as all nodes do.
func (s *Store) TakeTokens(ctx context.Context, asks []store.TokenAsk, rows int) ([]store.Token, error) {
	var out []store.Token
	byLimit := map[string][]store.TokenAsk{}
	for _, a := range asks {
		byLimit[a.Limit] = append(byLimit[a.Limit], a)
	}
	err := s.db.Write(ctx, func(t Tx) error {
		out = make([]store.Token, len(asks))
		for _, path := range slices.Sorted(maps.Keys(byLimit)) {
			l := limitTx{t: t, path: path}
			err := l.lock(ctx, 2*len(byLimit[path]))
			if err == nil {
				err = l.read(ctx, byLimit[path])
			}
			if err != nil {
				return err
			}
			for i := range asks {
				if asks[i].Limit == path {
					out[i] = l.answer(&asks[i], rows)
				}
			}
			if err := l.save(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take tokens of limits: %w", err)
	}
	return out, nil
}

// SweepLimits implements [store.Limits].
func (s *Store) SweepLimits(ctx context.Context) (map[string]int, error) {
	kept := map[string]int{}
	err := s.db.Read(ctx, listLimits, nil, func(r Row) error {
		var path string
		var held int
		err := r.Scan(&path, &held)
		kept[path] = held
		return err
	})
	for _, path := range slices.Sorted(maps.Keys(kept)) {
		if err != nil {
			break
		}
		err = s.db.Write(ctx, func(t Tx) error {
			l := limitTx{t: t, path: path}
			if err := l.lock(ctx, sweptAtOnce); err != nil {
				return err
			}
			kept[path] = l.room.Rows
			t.Queue(setLimit, []any{path, l.room.Rows, l.room.Away})
			t.Queue(dropLimit, []any{path, l.now})
			return t.Send(ctx)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("sweep limits: %w", err)
	}
	return kept, nil
}
