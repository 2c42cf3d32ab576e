package shardmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/handlers/sharding/language"

	"github.com/jackc/pgx/v5"
)

// A Usage measures how full and how busy the shards of a map are, and by which keys.
type Usage struct{ *Map }

const (
	// The size of the database less the dead rows and the free space in its tables, which rows that
	// left leave behind. New rows reuse both. The statistics count rows at once when they are deleted.
	// After a crash they begin at zero, so the catalog counts until the next vacuum or analyze. A chunk
	// of a large value has about 2 kB. Without statistics of the columns, dead rows alone count.
	readUsage = `with tables as (
		select c.oid, c.reltoastrelid, coalesce(pg_relation_size(c.oid), 0) as heap, coalesce(pg_indexes_size(c.oid), 0) as indexes,
			coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0) as toast,
			(select sum((1 - s.null_frac) * s.avg_width) from pg_stats s
				where s.schemaname = n.nspname and s.tablename = c.relname and not s.inherited) as width
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'm') and c.relpersistence <> 't' and n.nspname not in ('pg_catalog', 'information_schema')
	), counts as (
		select s.relid, s.n_dead_tup as dead, case when coalesce(s.last_vacuum, s.last_autovacuum, s.last_analyze, s.last_autoanalyze) is null
			then greatest(s.n_live_tup, c.reltuples::bigint) else s.n_live_tup end as live
		from pg_stat_all_tables s join pg_class c on c.oid = s.relid
	), shares as (
		select heap, indexes, toast, least(1, coalesce(r.live * (ceil((24 + width) / 8) * 8 + 4) * 1.03 / nullif(heap, 0),
				r.live::float8 / nullif(r.live + r.dead, 0), 1)) as full_heap,
			least(1, coalesce(l.live * 2080.0 / nullif(toast, 0), 1)) as full_toast
		from tables t left join counts r on r.relid = t.oid left join counts l on l.relid = t.reltoastrelid
	)
	select (pg_database_size(current_database()) - (select coalesce(sum((heap + indexes) * (1 - full_heap) + toast * (1 - full_toast)), 0)
			from shares))::bigint, count(*) filter (where state = 'active' and pid <> pg_backend_pid())::real,
		count(*)::int, current_setting('max_connections')::int from pg_stat_activity where backend_type = 'client backend'`

	// The load of one moment is random, so it is averaged over some measurements.
	writeUsage = `update shards set used = $3, load = case when measured > now() - interval '2 hours' then
	(coalesce(load, $4) + $4) / 2 else $4 end,
		connections = $5, max_connections = $6, measured = now() where map = $1 and id = $2`
)

// Measure measures how full and how busy a shard is.
func (u Usage) Measure(ctx context.Context, shard string) error {
	pool, err := u.service.Connect(ctx, u.Map, shard)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*u.service.patience())
	defer cancel()
	var used int64
	var load float32
	var connections, most int
	if err := pool.QueryRow(ctx, readUsage).Scan(&used, &load, &connections, &most); err != nil {
		return errors.Join(err, ctx.Err())
	}
	_, err = u.service.pool.Exec(ctx, writeUsage, u.ID, shard, used, load, connections, most)
	return err
}

// A KeySize is a key with the number of its rows, or an estimate.
type KeySize struct {
	Key  string
	Rows int64
}

const countUsed = `select count(*) from shard_placements where map = $1 and shard = $2 and state = 'active' and active >= $3`

// UsedSince counts the placements of a shard that were used since a time.
func (u Usage) UsedSince(ctx context.Context, shard string, since time.Time) (n int64, err error) {
	if err := u.service.pool.QueryRow(ctx, countUsed, u.ID, shard, since).Scan(&n); err != nil {
		return 0, fmt.Errorf("map %s: keys in use on %s: %w", u.ID, shard, err)
	}
	return n, nil
}

// Placements that may move are those without a transfer.
const (
	idleKeys = `select key from shard_placements where map = $1 and shard = $2 and state = 'active' and owner is null
		and ($3 = '' or ($3 = 'idle') = (active < $4)) order by active, key limit $5`
	freeKeys = `select key from shard_placements where map = $1 and shard = $2 and state = 'active' and owner is null and key = any($3)`
)

// Movable lists placements of a shard without a transfer, least recently used first. which is idle
// for those not used since a time, busy for the others, and empty for all.
func (u Usage) Movable(ctx context.Context, shard, which string, since time.Time, limit int) ([]string, error) {
	return u.keys(ctx, u.service.pool, idleKeys, u.ID, shard, which, since, limit)
}

// sampleRows is roughly how many rows of a table are sampled to estimate the sizes of keys.
const sampleRows = 200_000

// Sizes estimates how many rows of a table the keys of a shard have, and the total.
func (u Usage) Sizes(ctx context.Context, shard string, t *language.ShardTable) (sizes []KeySize, rows int64, err error) {
	pool, err := u.service.Connect(ctx, u.Map, shard)
	if err != nil {
		return nil, 0, err
	}
	table, column := quoteTable(t.Table), quoteName(rowFinder{u.Map}.columns(t)[0])
	if err := pool.QueryRow(ctx, `select greatest(reltuples, 0)::bigint from pg_class where oid = $1::regclass`,
		table).Scan(&rows); err != nil {
		return nil, 0, fmt.Errorf("map %s: sizes on %s: %w", u.ID, shard, err)
	}
	percent := min(100, 100*float64(sampleRows)/float64(max(rows, 1)))
	found, err := pool.Query(ctx, fmt.Sprintf(`select %s::text, count(*) from %s tablesample system (%f) group by 1 order by 1 limit 100000`,
		column, table, percent))
	if err != nil {
		return nil, 0, fmt.Errorf("map %s: sizes on %s: %w", u.ID, shard, err)
	}
	var first string
	var n, sampled int64
	_, err = pgx.ForEachRow(found, []any{&first, &n}, func() error {
		sampled += n
		sizes = append(sizes, KeySize{Key{first}.String(), max(int64(float64(n)*100/percent), 1)})
		return nil
	})
	return sizes, max(rows, sampled), err
}

// Free returns those of the keys that have a placement on a shard and no transfer.
func (u Usage) Free(ctx context.Context, shard string, all []KeySize) ([]KeySize, error) {
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.Key
	}
	free, err := u.keys(ctx, u.service.pool, freeKeys, u.ID, shard, names)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, k := range free {
		known[k] = true
	}
	return slices.DeleteFunc(all, func(k KeySize) bool { return !known[k.Key] }), nil
}
