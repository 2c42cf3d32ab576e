package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"procaas/engine/store"
)

// This file remembers which worker asks for which tasks. A type that no worker has ever asked for
// is probably mistyped. Package queue does the same in PostgreSQL.

// taskAsked remembers which types workers asked for recently.
type taskAsked struct {
	mu   sync.Mutex // guards told
	told map[string]time.Time
}

// askedMost bounds the remembered types and the rows to read, because workers may invent names.
const askedMost = 10_000

// due returns the types of a claim that must be written.
func (a *taskAsked) due(c *store.TaskClaim) (types []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range c.Types {
		want := &c.Types[i]
		if want.Limit > 0 && time.Since(a.told[want.Type]) >= store.TaskAskedPause {
			types = append(types, want.Type)
		}
	}
	return types
}

// wrote notes that types have been written.
func (a *taskAsked) wrote(types []string) {
	if len(types) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told == nil || len(a.told) >= askedMost {
		a.told = map[string]time.Time{}
	}
	for _, t := range types {
		a.told[t] = time.Now()
	}
}

const (
	noteAsked = `insert into task_facts (type, asked, worker) values (?, ?, ?)
		on conflict (type) do update set asked = excluded.asked, worker = excluded.worker`
	noteRaised = `insert into task_facts (type, raised, raised_at) values (?, ?, ?)
		on conflict (type) do update set raised = raised + excluded.raised, raised_at = excluded.raised_at`
	readFacts   = "select type, asked, worker, raised, raised_at from task_facts order by max(asked, raised_at) desc limit ?"
	expireFacts = "delete from task_facts where max(asked, raised_at) < ?"
	readKnown   = `select type from (select type from task_facts where asked > 0 order by asked desc limit ?1)
		union select type from (select type from task_types limit ?1)`
)

// facts adds what is known about types other than their tasks.
func (s *Store) facts(ctx context.Context, stats []store.TaskTypeStats) error {
	r, err := s.read.QueryContext(ctx, readFacts, askedMost)
	if err != nil {
		return err
	}
	of := make(map[string]*store.TaskTypeStats, len(stats))
	for i := range stats {
		of[stats[i].Type] = &stats[i]
	}
	_, err = collect(r, func(r *sql.Rows) (struct{}, error) {
		var (
			kind, worker          string
			asked, raised, raisal int64
		)
		err := r.Scan(&kind, &asked, &worker, &raised, &raisal)
		if one := of[kind]; one != nil {
			one.Asked = taskTime(asked)
			one.AskedBy = worker
			one.Raised = raised
			one.RaisedLast = taskTime(raisal)
		}
		return struct{}{}, err
	})
	return err
}

// KnownTaskTypes implements [store.TaskAdmin].
func (s *Store) KnownTaskTypes(ctx context.Context) ([]string, error) {
	r, err := s.read.QueryContext(ctx, readKnown, askedMost)
	if err != nil {
		return nil, err
	}
	return collect(r, func(r *sql.Rows) (kind string, err error) { return kind, r.Scan(&kind) })
}
