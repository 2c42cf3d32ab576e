package shardmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

var _ transfers.ShardMaps = (*Service)(nil)

// shardMap returns a map, with an error for the API.
func (s *Service) shardMap(id string) (*Map, error) {
	m, err := s.Map(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", transfers.ErrShardMap, id)
	}
	return m, nil
}

// Resolve implements [transfers.ShardMaps].
func (s *Service) Resolve(ctx context.Context, shardMap string, q transfers.ShardQuestion) (transfers.ShardAnswer, error) {
	m, err := s.shardMap(shardMap)
	if err != nil {
		return transfers.ShardAnswer{}, err
	}
	return m.Resolve(ctx, q)
}

// Watch implements [transfers.ShardMaps]. A position belongs to one index. The index is new after a
// restart and when the files are loaded again. A client with a position of another index forgets
// all of its answers. There is no position before all placements are loaded: what is loaded is no
// change, so somebody who had asked before would not learn that it differs from the answer.
func (s *Service) Watch(ctx context.Context, shardMap, after string) (transfers.ShardChanges, error) {
	id, number, _ := strings.Cut(after, "-")
	asked, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		asked = -1
	}
	for {
		m, again, err := s.watched(shardMap)
		if err != nil {
			return transfers.ShardChanges{}, err
		}
		select {
		case <-m.loaded:
		default:
			select {
			case <-m.loaded:
			case <-again:
			case <-ctx.Done():
				return transfers.ShardChanges{Reset: true, Items: []transfers.ShardPlacement{}}, nil
			}
			continue
		}
		position := asked
		if id != m.index.id {
			position = -1
		}
		changes, next, more, ok := m.index.since(position)
		c := transfers.ShardChanges{Next: m.index.id + "-" + strconv.FormatInt(next, 10), Reset: !ok, Items: []transfers.ShardPlacement{}}
		for _, p := range changes {
			c.Items = append(c.Items, transfers.ShardPlacement{Placement: p.Key, Shard: p.Shard, Epoch: p.Epoch, Moving: p.Owned})
		}
		if !ok || len(changes) > 0 {
			return c, nil
		}
		select {
		case <-more:
		case <-again: // the former index reports no more changes
		case <-ctx.Done():
			return c, nil
		}
	}
}

// watched returns a map, and a channel that is closed when the maps are replaced.
func (s *Service) watched(id string) (*Map, <-chan struct{}, error) {
	s.mu.RLock()
	again := s.again // read first, so that a later replacement of the map closes it
	s.mu.RUnlock()
	m, err := s.shardMap(id)
	return m, again, err
}

// MapViews implements [transfers.ShardMaps].
func (s *Service) MapViews(context.Context) ([]transfers.ShardMapView, error) {
	views := []transfers.ShardMapView{}
	for _, m := range s.Maps() {
		views = append(views, transfers.ShardMapView{
			ID: m.ID, Key: m.Declared.Key, Strategy: m.layout.strategy, Owner: m.Declared.Owner,
			Shards: len(m.Declared.Shards), Loaded: m.index.size(),
		})
	}
	return views, nil
}

const readShards = `select id, coalesce(place, -1), class, registration and closed is null and draining is null, transfer and draining is null,
	coalesce(closed, ''), coalesce(draining, ''), drain_asked, capacity, coalesce(used, 0), coalesce(load / nullif(max_connections, 0), 0),
	coalesce(connections, 0),
	(select count(*) from shard_placements p where p.map = s.map and p.shard = s.id and p.state not in ('refused', 'merged'))
	from shards s where map = $1 and declared and ($2 = '' or id = $2) order by id`

// Shards implements [transfers.ShardMaps].
func (s *Service) Shards(ctx context.Context, shardMap string) ([]transfers.ShardView, error) {
	m, err := s.shardMap(shardMap)
	if err != nil {
		return nil, err
	}
	views, err := m.ShardViews(ctx, "")
	if err != nil {
		return nil, err
	}
	var all []transfers.ShardTransfer
	if s.o.Transfers != nil {
		if all, err = s.o.Transfers(ctx, m.ID); err != nil {
			return nil, err
		}
	}
	for i := range views {
		views[i].DrainSeconds = int64(views[i].DrainTime(all).Seconds())
	}
	return views, nil
}

// ShardViews describes one shard, or all shards.
func (m *Map) ShardViews(ctx context.Context, only string) ([]transfers.ShardView, error) {
	rows, err := m.service.pool.Query(ctx, readShards, m.ID, only)
	if err != nil {
		return nil, fmt.Errorf("map %s: read shards: %w", m.ID, err)
	}
	views, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (transfers.ShardView, error) {
		v := transfers.ShardView{Map: m.ID}
		err := row.Scan(&v.ID, &v.Place, &v.Class, &v.Registration, &v.Transfer, &v.Closed, &v.Draining, &v.DrainAsked, &v.Capacity, &v.Used, &v.Load, &v.Connections,
			&v.Placements)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("map %s: read shards: %w", m.ID, err)
	}
	for i := range views {
		m.addHosts(&views[i])
	}
	return views, nil
}

// addHosts adds the hosts of a shard.
func (m *Map) addHosts(v *transfers.ShardView) {
	v.Hosts = []transfers.ShardHostView{}
	if v.Capacity > 0 {
		v.Usage = float64(v.Used) / float64(v.Capacity)
	}
	s := m.shards[v.ID]
	if s == nil {
		v.Problem = "it is not declared on this node"
		return
	}
	seen := s.view.Load()
	if seen == nil {
		for _, h := range s.unseen {
			v.Hosts = append(v.Hosts, transfers.ShardHostView{Address: h.Address, DC: h.DC, Role: h.Role})
		}
		v.Problem = "nobody has looked at its hosts yet"
		return
	}
	v.Problem = seen.problem
	for i, h := range seen.hosts {
		view := transfers.ShardHostView{
			Address: h.address, DC: h.dc, Role: seen.role(i), Alive: h.alive, Timeline: h.last.Timeline, LSN: lsnText(h.last.LSN),
			LagMS: seen.lags[i].Milliseconds(), Load: h.last.Load, Seen: h.seen,
			Connections: h.last.Connections, MaxConnections: h.last.MaxConnections,
		}
		if h.err != nil {
			view.Error = h.err.Error()
		}
		v.Hosts = append(v.Hosts, view)
	}
	if seen.master >= 0 {
		v.Master = seen.hosts[seen.master].address
		if !seen.hosts[seen.master].last.Compared {
			v.Problem = "the master was promoted, and its fences have not been compared with the map yet: it takes no writes"
		}
	}
}

// audit records a change of a shard or placement in the transaction of the change.
func (m *Map) audit(ctx context.Context, tx pgx.Tx, what string, after any, by store.Actor) error {
	if m.service.o.Audit == nil {
		return nil
	}
	a, err := transfers.ShardChanged(m.ID, what, after, by)
	if err != nil {
		return err
	}
	return m.service.o.Audit(ctx, tx, a)
}

// auditNow is audit for changes outside of the map's database.
func (m *Map) auditNow(ctx context.Context, what string, after any, by store.Actor) error {
	return pgx.BeginFunc(ctx, m.service.pool, func(tx pgx.Tx) error { return m.audit(ctx, tx, what, after, by) })
}

// Only what the change names: closing a shard keeps the reason of its drain.
const setShard = `update shards set closed = case when $3 then nullif($4, '') else closed end,
	draining = case when $5 then nullif($6, '') else draining end,
	drain_asked = case when $5 and $6 <> '' then clock_timestamp() else drain_asked end where map = $1 and id = $2 and declared`

// SetShard implements [transfers.ShardMaps].
func (s *Service) SetShard(ctx context.Context, shardMap, id string, c transfers.ShardChange,
	by store.Actor,
) (transfers.ShardView, error) {
	m, err := s.shardMap(shardMap)
	if err != nil {
		return transfers.ShardView{}, err
	}
	var closed, draining string
	if c.Closed != nil {
		closed = *c.Closed
	}
	if c.Draining != nil {
		draining = *c.Draining
	}
	if draining != "" {
		if err := m.mayDrain(ctx, id); err != nil {
			return transfers.ShardView{}, err
		}
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, setShard, m.ID, id, c.Closed != nil, closed, c.Draining != nil, draining)
		if err != nil {
			return fmt.Errorf("shard %s: %w", id, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: %q", transfers.ErrShard, id)
		}
		return m.audit(ctx, tx, id, c, by)
	})
	if err != nil {
		return transfers.ShardView{}, fmt.Errorf("map %s: %w", m.ID, err)
	}
	s.log.Info("shard changed", "map", m.ID, "shard", id, "closed", closed, "draining", draining, "by", by.Name, "reason", by.Reason)
	views, err := m.ShardViews(ctx, id)
	if err != nil || len(views) == 0 {
		return transfers.ShardView{}, errors.Join(err, transfers.ErrShard)
	}
	return views[0], nil
}

// mayDrain refuses to drain a shard if a preflight stops transfers from it, or those to each shard that
// could take its keys. A shard that does not answer now may do so before its keys move.
func (m *Map) mayDrain(ctx context.Context, shard string) error {
	reasons, err := m.TableErrors(ctx, shard)
	if err != nil && m.Declared.Shard(shard) != nil {
		m.service.log.Warn("the tables of a shard to drain cannot be checked", "map", m.ID, "shard", shard, "error", err)
	}
	if err != nil {
		return nil
	}
	if len(reasons) == 0 {
		views, err := m.ShardViews(ctx, "")
		if err != nil {
			return err
		}
		own := slices.IndexFunc(views, func(v transfers.ShardView) bool { return v.ID == shard })
		for _, v := range views {
			if own < 0 || v.ID == shard || v.Class != views[own].Class || !v.Transfer {
				continue
			}
			found, err := m.TableErrors(ctx, v.ID)
			if err != nil || len(found) == 0 {
				return nil
			}
			reasons = append(reasons, found...)
		}
	}
	if len(reasons) > 0 {
		return fmt.Errorf("map %s: shard %s cannot be drained: %w: %s", m.ID, shard, transfers.ErrShardFindings, strings.Join(reasons, "; "))
	}
	return nil
}

// EnrollShard implements [transfers.ShardMaps].
func (s *Service) EnrollShard(ctx context.Context, shardMap, id string, by store.Actor) (transfers.ShardEnrollment, error) {
	m, err := s.shardMap(shardMap)
	if err != nil {
		return transfers.ShardEnrollment{}, err
	}
	if m.Declared.Shard(id) == nil {
		return transfers.ShardEnrollment{}, fmt.Errorf("map %s: %w: %q", m.ID, transfers.ErrShard, id)
	}
	e, err := s.enroll(ctx, m, id, func(after any) error { return m.auditNow(ctx, id, after, by) })
	if err != nil {
		return transfers.ShardEnrollment{}, fmt.Errorf("%w: %w", transfers.ErrNoHost, err)
	}
	s.log.Info("shard enrolled", "map", m.ID, "shard", id, "refused", len(e.Reasons) > 0, "by", by.Name)
	out := transfers.ShardEnrollment{
		Map: m.ID, Shard: id, Reasons: []string{}, Warnings: []string{}, Publications: []string{},
		Fences: e.Fences,
	}
	out.Reasons = append(out.Reasons, e.Reasons...)
	out.Warnings = append(out.Warnings, e.Warnings...)
	out.Publications = append(out.Publications, e.Publications...)
	return out, nil
}
