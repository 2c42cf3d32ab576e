package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"procaas/engine/store"
)

const (
	addUsage = `insert into usage_days as u (day, path, calls, request_bytes, bytes, call_micros, cpu_micros, runs, stored_bytes, timed, late)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
	on conflict (day, path) do update set calls = u.calls + excluded.calls,
	request_bytes = u.request_bytes + excluded.request_bytes, bytes = u.bytes + excluded.bytes,
	call_micros = u.call_micros + excluded.call_micros, cpu_micros = u.cpu_micros + excluded.cpu_micros,
	runs = u.runs + excluded.runs, stored_bytes = u.stored_bytes + excluded.stored_bytes,
	timed = u.timed + excluded.timed, late = u.late + excluded.late`
	forgetUsage = "delete from usage_days where day < $1"
	usageFrom   = "select day, path, calls, request_bytes, bytes, call_micros, cpu_micros, runs, stored_bytes, timed, late " +
		"from usage_days where day >= $1"
	listUsage = usageFrom + " order by day, path"
	listTimed = usageFrom + " and timed > 0 order by day, path"
)

// AddUsage implements [store.Usage]. It locks rows in the order of days and paths, as all nodes do.
func (s *Store) AddUsage(ctx context.Context, uses []store.Use, oldest string) error {
	uses = slices.SortedFunc(slices.Values(uses), func(a, b store.Use) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Path, b.Path))
	})
	err := s.db.Write(ctx, func(t Tx) error {
		t.Queue(forgetUsage, []any{oldest})
		for _, u := range uses {
			t.Queue(addUsage, []any{
				u.Day, u.Path, u.Calls, u.RequestBytes, u.Bytes, u.CallMicros, u.CPUMicros, u.Runs, u.StoredBytes, u.Timed, u.Late,
			})
		}
		return t.Send(ctx)
	})
	if err != nil {
		return fmt.Errorf("add usage: %w", err)
	}
	return nil
}

// UsageSince implements [store.Usage].
func (s *Store) UsageSince(ctx context.Context, day string, each func(store.Use)) error {
	return s.uses(ctx, listUsage, day, each)
}

// TimedSince implements [store.Usage].
func (s *Store) TimedSince(ctx context.Context, day string, each func(store.Use)) error {
	return s.uses(ctx, listTimed, day, each)
}

func (s *Store) uses(ctx context.Context, query, day string, each func(store.Use)) error {
	return s.db.Read(ctx, query, []any{day}, func(r Row) error {
		var u store.Use
		err := r.Scan(&u.Day, &u.Path, &u.Calls, &u.RequestBytes, &u.Bytes, &u.CallMicros, &u.CPUMicros, &u.Runs, &u.StoredBytes,
			&u.Timed, &u.Late)
		if err == nil {
			each(u)
		}
		return err
	})
}
