package sqlstore

import (
	"cmp"
	"context"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	lastSign = "select max(seen) from {signs}"

	// Runs that have failed stay where they are, so they repeat nothing.
	restoredRuns = `select case pipeline when '' then flow else pipeline end, count(*) filter (where place = 'running'),
	count(*) filter (where place <> 'running' and started is not null), count(*) filter (where place <> 'running' and started is null)
	from runs where place not in ('failed', 'blocked', 'held', 'away') group by 1 order by 1`
	restoredInFlight = "select id, pipeline, key, accepted from runs where place = 'running' order by seq limit $1"
	restoredTasks    = "select type, count(*) from tasks where {taken} group by type order by type"
	restoredTriggers = "select source, max(id) from events where source >= $1 and source < $2 and id >= '0' group by source order by source" // not those by hand
)

// Repeats lists what a store would repeat as it is. why says why nodes refuse it, and may be empty. triggers is the prefix of the
// sources of triggers.
func (s *Store) Repeats(ctx context.Context, why, triggers string) (r store.Restored, err error) {
	r.Why = why
	var seen []time.Time
	err = cmp.Or(
		browse(ctx, s.db, &seen, lastSign, nil, func(r Row) (t time.Time, err error) { return t, r.Scan(at(&t)) }),
		browse(ctx, s.db, &r.Runs, restoredRuns, nil, func(r Row) (n store.RestoredRuns, err error) {
			return n, r.Scan(&n.Pipeline, &n.InFlight, &n.Begun, &n.Fresh)
		}),
		browse(ctx, s.db, &r.InFlight, restoredInFlight, []any{store.RestoredInFlight}, func(r Row) (run store.RestoredRun, err error) {
			return run, r.Scan(&run.Run, &run.Pipeline, &run.Key, at(&run.Accepted))
		}),
		browse(ctx, s.db, &r.Tasks, restoredTasks, nil, func(r Row) (n store.RestoredTasks, err error) {
			return n, r.Scan(&n.Type, &n.Tasks)
		}),
		browse(ctx, s.db, &r.Triggers, restoredTriggers, []any{triggers, triggers + "\U0010ffff"},
			func(r Row) (n store.RestoredTrigger, err error) {
				err = r.Scan(&n.Trigger, &n.Last)
				n.Trigger = strings.TrimPrefix(n.Trigger, triggers)
				return n, err
			}),
	)
	if len(seen) > 0 {
		r.Seen = seen[0].UTC()
	}
	return r, err
}

// AuditAdopted records that an operator adopts a restored store.
func AuditAdopted(ctx context.Context, t Statements, r store.Restored, by store.Actor) error {
	r.InFlight = nil // they may be many, and Runs counts them
	return Audit(ctx, t, store.Audited{Kind: store.AuditStore, Name: "adopt", By: by, After: model.EncodeJSON(r)})
}
