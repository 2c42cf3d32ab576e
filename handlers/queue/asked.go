package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"procaas/engine/clock"
	"procaas/engine/pgkit"
	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

// Any name is a type of tasks. So a task with a mistyped type waits for a worker that does not
// exist. Such a type differs in that no worker ever asks for it. So the store records which workers
// ask for which types: rarely, and after the claim, which must not wait for that.

// asked remembers which types workers of this process asked for recently.
type asked struct {
	mu    sync.Mutex           // guards the following
	told  map[string]time.Time // when each type was last taken to be written
	fresh map[string]string    // the workers that asked for types that are not written yet
	news  chan struct{}        // receives when fresh has entries
}

// askedMost bounds the types that a process remembers and that a read of the table returns, because
// workers may invent names. Beyond it, types are written more often.
const askedMost = 10_000

// note notes the types of a claim.
func (a *asked) note(c *Claim) {
	if len(c.Types) == 0 {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range c.Types {
		want := &c.Types[i]
		if want.Limit <= 0 { // it takes none
			continue
		}
		if last, ok := a.told[want.Type]; ok && now.Sub(last) < store.TaskAskedPause {
			continue
		}
		if len(a.told) >= askedMost {
			clear(a.told)
		}
		a.told[want.Type], a.fresh[want.Type] = now, c.Worker
		pgkit.Signal(a.news)
	}
}

// take returns the types to write.
func (a *asked) take() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := a.fresh
	a.fresh = map[string]string{}
	return fresh
}

// untold lets the next claim note types again whose write failed.
func (a *asked) untold(types map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range types {
		delete(a.told, t)
	}
}

// All processes lock rows in the order of their types.
const writeAsked = `
insert into task_facts as f (type, asked, worker)
select n.type, now(), n.worker from unnest($1::text[], $2::text[]) as n (type, worker) order by n.type
on conflict (type) do update set asked = excluded.asked, worker = excluded.worker
where f.asked is null or f.asked < excluded.asked`

// tellAsked writes which workers ask for which types, until ctx ends.
func (s *Store) tellAsked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.asked.news:
		}
		fresh := s.asked.take()
		types := slices.Sorted(maps.Keys(fresh))
		workers := make([]string, len(types))
		for i, t := range types {
			workers[i] = store.CutTaskText(fresh[t])
		}
		err := s.send(ctx, func(b *pgx.Batch) { b.Queue(writeAsked, types, workers) })
		if err == nil {
			continue
		}
		s.asked.untold(fresh)
		if !clock.Pause(ctx, time.Second) {
			return
		}
	}
}

const readKnown = `
(select type from task_facts where asked is not null order by asked desc limit $1)
union (select type from task_types limit $1)`

// KnownTaskTypes implements [store.TaskAdmin].
func (s *Store) KnownTaskTypes(ctx context.Context) (types []string, err error) {
	err = s.atOnce(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, readKnown, askedMost)
		if err == nil {
			types, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return types, err
}
