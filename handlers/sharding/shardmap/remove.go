package shardmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/transfers"
)

// This file removes what a map that is no longer declared has on its shards.

// A reach says how to connect to the shards of a map. It is stored with the map, because nothing
// else says so once no file declares it.
type reach struct {
	Owner      string            `json:"owner,omitempty"`
	Database   string            `json:"database"`
	User       string            `json:"user,omitempty"`
	Admin      string            `json:"admin,omitempty"`
	Secret     string            `json:"secret,omitempty"` // its name
	Parameters map[string]string `json:"parameters,omitempty"`
}

func (m *Map) reach() reach {
	c := m.connect()
	return reach{m.Declared.Owner, c.Database, c.User, c.Admin, c.Secret, c.Parameters}
}

const (
	readReach   = `select reach from shard_maps where id = $1`
	readHosts   = `select shard, address from shard_hosts where map = $1 order by shard, position`
	countPlaced = `select count(*) from shard_placements where map = $1`
	setRemoved  = `update shard_maps set removed = now() where id = $1`
	forgetMap   = `delete from shard_maps where id = $1`
	readLeft    = `select id from shard_maps where reach is not null and removed is null and id <> all($1) order by id`

	fencesThere  = `select to_regclass('procaas.fences') is not null`
	countFences  = `select count(*) from procaas.fences where map = $1`
	deleteFences = `delete from procaas.fences where map = $1
		and key in (select key from procaas.fences where map = $1 order by key limit $2)`
	forgetCompared = `delete from procaas.compared_maps where map = $1`
	slotsNamed     = `select slot_name::text from pg_replication_slots where slot_name = any($1) and database = current_database() order by 1`
	dropSlot       = `select pg_drop_replication_slot($1)`
	preparedNamed  = `select gid from pg_prepared_xacts where starts_with(gid, $1) and database = current_database() order by 1`
)

// removePatience bounds the removal from one shard.
const removePatience = 5 * time.Minute

// removed returns a map as the store knows it, for one that is not declared.
func (s *Service) removed(ctx context.Context, id string) (*Map, error) {
	var text []byte
	err := s.pool.QueryRow(ctx, readReach, id).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %q", transfers.ErrShardMap, id)
	}
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", id, err)
	}
	if text == nil {
		return nil, fmt.Errorf("map %s: %w: an older release has kept it, which did not store how to reach its shards; declare it again, "+
			"reload, take it out of the files, and reload", id, transfers.ErrShardBusy)
	}
	var to reach
	if err := json.Unmarshal(text, &to); err != nil {
		return nil, fmt.Errorf("map %s: how to reach its shards: %w", id, err)
	}
	d := &language.ShardMap{ID: id, Owner: to.Owner, Connect: &language.ShardConnect{
		Database: to.Database, User: to.User, Admin: to.Admin, Secret: to.Secret, Parameters: to.Parameters,
	}}
	rows, err := s.pool.Query(ctx, readHosts, id)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", id, err)
	}
	var shard, address string
	_, err = pgx.ForEachRow(rows, []any{&shard, &address}, func() error {
		x := d.Shard(shard)
		if x == nil {
			x = &language.Shard{ID: shard}
			d.Shards = append(d.Shards, x)
		}
		x.Hosts = append(x.Hosts, &language.ShardHost{Address: address})
		return nil
	})
	return &Map{ID: id, Declared: d, service: s}, err
}

// RemoveMap implements [transfers.ShardMaps].
func (s *Service) RemoveMap(ctx context.Context, id string, ask transfers.ShardRemove, by store.Actor) (transfers.ShardRemoval, error) {
	out := transfers.ShardRemoval{Map: id, DryRun: ask.DryRun}
	m, err := s.Map(id)
	switch {
	case err != nil:
		m, err = s.removed(ctx, id)
	case !ask.DryRun:
		err = fmt.Errorf("map %s: %w: it is declared, and its writers need the fences; take it out of the files and reload first", id,
			transfers.ErrShardBusy)
	}
	if err != nil {
		return out, err
	}
	ids, open, err := s.transfersOf(ctx, id)
	if err == nil && open != "" {
		err = fmt.Errorf("map %s: %w: %s; declare the map until it has ended", id, transfers.ErrShardBusy, open)
	}
	if err != nil {
		return out, err
	}
	if !ask.DryRun {
		if err := m.auditNow(ctx, "*", map[string]any{"removing": true, "forget": ask.Forget}, by); err != nil {
			return out, err
		}
	}
	if err := s.pool.QueryRow(ctx, countPlaced, id).Scan(&out.Placements); err != nil {
		return out, fmt.Errorf("map %s: %w", id, err)
	}
	out.Shards = make([]transfers.ShardRemains, len(m.Declared.Shards))
	var g errgroup.Group
	g.SetLimit(shardConns)
	for i, d := range m.Declared.Shards {
		g.Go(func() error {
			out.Shards[i] = m.removeFrom(ctx, d.ID, ids, ask.DryRun)
			return nil
		})
	}
	_ = g.Wait()
	if ask.DryRun {
		return out, nil
	}
	return out, s.endRemoval(ctx, m, ask, &out, by)
}

// endRemoval stores that nothing of the map is left on its shards, or forgets the map.
func (s *Service) endRemoval(ctx context.Context, m *Map, ask transfers.ShardRemove, out *transfers.ShardRemoval, by store.Actor) error {
	all := true
	for _, x := range out.Shards {
		all = all && x.Error == ""
	}
	if err := m.rollBackAll(ctx, s.pool, pairing{m}.mapGID()); err != nil {
		return fmt.Errorf("map %s: %w", m.ID, err)
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		sql := setRemoved
		if ask.Forget {
			sql = forgetMap
		}
		if all || ask.Forget {
			if _, err := tx.Exec(ctx, sql, m.ID); err != nil {
				return err
			}
		}
		out.Forgotten = ask.Forget
		return m.audit(ctx, tx, "*", out, by)
	})
	if err != nil {
		return fmt.Errorf("map %s: %w", m.ID, err)
	}
	s.log.Info("shard map removed from its shards", "map", m.ID, "everywhere", all, "forgotten", out.Forgotten, "by", by.Name, "reason", by.Reason)
	return nil
}

// transfersOf returns the ids of the transfers of a map. open describes one that has not ended.
func (s *Service) transfersOf(ctx context.Context, id string) (ids []string, open string, err error) {
	if s.o.Transfers == nil {
		return nil, "", nil
	}
	all, err := s.o.Transfers(ctx, id)
	if err != nil {
		return nil, "", fmt.Errorf("map %s: %w", id, err)
	}
	for _, t := range all {
		if !transfers.TransferEnded(t.State) {
			open = fmt.Sprintf("transfer %s of key %s is %s: tell it to finish or to cancel", t.ID, t.Key, t.State)
		}
		ids = append(ids, t.ID)
	}
	return ids, open, nil
}

// removeFrom removes what the map has on a shard, or only finds it. ids are those of its transfers.
func (m *Map) removeFrom(ctx context.Context, shard string, ids []string, dry bool) transfers.ShardRemains {
	out := transfers.ShardRemains{Shard: shard, Publications: []string{}, Slots: []string{}}
	ctx, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	pool, err := m.service.Connect(ctx, m, shard)
	there := false
	if err == nil {
		err = pool.QueryRow(ctx, fencesThere).Scan(&there)
	}
	if err == nil && there { // else it was never enrolled
		err = m.findRemains(ctx, pool, ids, &out)
	}
	if err == nil && there && !dry {
		err = m.dropRemains(ctx, pool, &out)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// findRemains finds what the map has on a shard.
func (m *Map) findRemains(ctx context.Context, q Querier, ids []string, out *transfers.ShardRemains) (err error) {
	if err := q.QueryRow(ctx, countFences, m.ID).Scan(&out.Fences); err != nil {
		return err
	}
	var publications, slots []string
	for bucket := range Buckets {
		publications = append(publications, rowFinder{m}.publication(bucket))
	}
	for _, id := range ids {
		slots = append(slots, "procaas_"+id, "procaas_"+id+"_back")
	}
	if out.Slots, err = m.keys(ctx, q, slotsNamed, slots); err != nil {
		return err
	}
	out.Publications, err = m.keys(ctx, q, knownPublications+" order by 1", append(publications, slots...))
	return err
}

// fenceBatch is how many fences are deleted in one transaction, so that the log of the shard and its
// standbys keep up.
const fenceBatch = 10_000

// dropRemains removes what was found. The slots come first, because they hold the log.
func (m *Map) dropRemains(ctx context.Context, pool *pgxpool.Pool, out *transfers.ShardRemains) error {
	for _, name := range out.Slots {
		if _, err := pool.Exec(ctx, dropSlot, name); err != nil {
			return fmt.Errorf("slot %s: %w", name, err)
		}
	}
	if err := m.rollBackAll(ctx, pool, pairing{m}.shardGID(out.Shard)); err != nil {
		return err
	}
	for {
		tag, err := pool.Exec(ctx, deleteFences, m.ID, fenceBatch)
		if err != nil {
			return fmt.Errorf("fences: %w", err)
		}
		if tag.RowsAffected() < fenceBatch {
			break
		}
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := installFence(ctx, tx); err != nil { // an older release may have enrolled it
			return err
		}
		if len(out.Publications) > 0 {
			names := make([]string, len(out.Publications))
			for i, name := range out.Publications {
				names[i] = quoteName(name)
			}
			if _, err := tx.Exec(ctx, "drop publication if exists "+strings.Join(names, ", ")); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, forgetCompared, m.ID)
		return err
	})
}

// rollBackAll rolls back prepared transactions of registrations, which nobody completes any more.
func (m *Map) rollBackAll(ctx context.Context, q Querier, prefix string) error {
	gids, err := m.keys(ctx, q, preparedNamed, prefix)
	for _, gid := range gids {
		if _, err := q.Exec(ctx, rollbackPrepared(gid)); ignoreGone(err) != nil {
			return fmt.Errorf("prepared transaction %s: %w", gid, err)
		}
	}
	return err
}

// tellLeft logs the maps that are not declared any more, but have something on their shards.
func (s *Service) tellLeft(ctx context.Context, declared []*language.ShardMap) error {
	ids := []string{}
	for _, d := range declared {
		ids = append(ids, d.ID)
	}
	rows, err := s.pool.Query(ctx, readLeft, ids)
	if err != nil {
		return err
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range left {
		s.log.Warn("a shard map is not declared any more; its fences and publications stay on its shards until they are removed",
			"map", id, "remove", "procaas shard remove "+id)
	}
	return err
}
