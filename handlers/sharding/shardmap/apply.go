package shardmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"procaas/handlers/sharding/language"
)

// Maps, shards and hosts are copied into the database, so that all nodes and all programs that plan
// moves read the same.
const (
	lockMaps = `select pg_advisory_xact_lock(hashtextextended('procaas shard maps ' || current_schema, 0))`
	putMap   = `insert into shard_maps (id, strategy, slots, reach) values ($1, $2, $3, $4)
		on conflict (id) do update set version = shard_maps.version + 1, reach = excluded.reach, removed = null
		returning strategy, slots, version`
	forgetShards = `update shards set declared = false where map = $1 and declared`
	putShard     = `insert into shards (map, id, class, registration, transfer, capacity, declared, closed)
		values ($1, $2, $3, $4, $5, $6, true, $7)
		on conflict (map, id) do update set class = excluded.class, registration = excluded.registration, transfer = excluded.transfer,
			capacity = excluded.capacity, declared = true`
	// A shard gets the place where the map declares it first, or one behind all others if that is taken.
	putPlace = `update shards s set place = case when exists (select from shards o where o.map = s.map and o.place = $3)
			then (select max(o.place) + 1 from shards o where o.map = s.map) else $3 end
		where map = $1 and id = $2 and place is null`
	// A store that was restored from a dump has the numbers of another server's transactions.
	countAnew = `update shard_placements set changed = pg_current_xact_id() where map = $1 and changed > pg_current_xact_id()`
	dropHosts = `delete from shard_hosts where map = $1`
	putHost   = `insert into shard_hosts (map, shard, address, dc, position) values ($1, $2, $3, $4, $5)`
	seedParts = `insert into shard_placements (map, key, shard) select $1, * from unnest($2::text[], $3::text[])
		on conflict do nothing`
	homeless = `select key, shard from shard_placements p where map = $1 and state <> 'merged'
		and not exists (select from shards s where s.map = p.map and s.id = p.shard and s.declared) limit 1`
)

// notEnrolled closes a shard that is new in a map. Without fences, no key can be registered on it.
const notEnrolled = "it is not enrolled yet"

// A MapError says why a declared map cannot replace the stored one.
type MapError struct {
	Map, Reason string
}

// Error implements error.
func (e *MapError) Error() string { return "map " + e.Map + ": " + e.Reason }

// errChecked rolls back a check.
var errChecked = errors.New("checked")

// Check reports whether [Service.Apply] would accept maps. The error is a [*MapError] if not. It
// changes nothing.
func (s *Service) Check(ctx context.Context, declared []*language.ShardMap) error {
	_, err := s.write(ctx, declared, errChecked)
	if !errors.Is(err, errChecked) {
		return err
	}
	// Without its map, a transfer could neither go on nor be undone.
	for _, m := range s.Maps() {
		if slices.ContainsFunc(declared, func(d *language.ShardMap) bool { return d.ID == m.ID }) {
			continue
		}
		_, open, err := s.transfersOf(ctx, m.ID)
		if err != nil {
			return err
		}
		if open != "" {
			return &MapError{m.ID, "it is not declared any more, but " + open}
		}
	}
	return nil
}

// Apply sets the maps of the service. It stores what is new. Slots and stretches get their shards
// only the first time.
func (s *Service) Apply(ctx context.Context, declared []*language.ShardMap) error {
	ready, err := s.write(ctx, declared, nil)
	if err != nil {
		return err
	}
	// Waiting callers are woken when the new maps can be found.
	s.mu.Lock()
	s.maps = ready
	again := s.again
	s.again = make(chan struct{})
	s.mu.Unlock()
	close(again)
	s.changed()
	return s.tellLeft(ctx, declared)
}

// write stores what is new in maps, and returns them. The transaction ends with the error end.
func (s *Service) write(ctx context.Context, declared []*language.ShardMap, end error) (map[string]*Map, error) {
	ready := map[string]*Map{}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Nodes start at the same time with the same files. They write one after another, so that
		// only the first places the slots.
		if _, err := tx.Exec(ctx, lockMaps); err != nil {
			return err
		}
		for _, d := range declared {
			m := s.newMap(d)
			if err := m.apply(ctx, tx); err != nil {
				if _, ok := errors.AsType[*MapError](err); ok {
					return err
				}
				return fmt.Errorf("map %s: %w", d.ID, err)
			}
			ready[d.ID] = m
		}
		return end
	})
	return ready, err
}

func (s *Service) newMap(d *language.ShardMap) *Map {
	l := layoutOf(d)
	m := &Map{ID: d.ID, Declared: d, layout: l, service: s, index: newIndex(d.ID, l), loaded: make(chan struct{}), shards: map[string]*shard{}}
	for _, x := range d.Shards {
		m.shards[x.ID] = newShard(x)
	}
	m.spellAnswers()
	return m
}

func (m *Map) apply(ctx context.Context, tx pgx.Tx) error {
	var strategy string
	var slots, version int
	if err := tx.QueryRow(ctx, putMap, m.ID, m.layout.strategy, m.layout.slots, m.reach()).Scan(&strategy, &slots, &version); err != nil {
		return err
	}
	if strategy != m.layout.strategy || strategy == "slots" && slots != m.layout.slots {
		return &MapError{m.ID, fmt.Sprintf("it is kept by %s with %d slots; neither can change: declare a new map", strategy, slots)}
	}
	// What is no longer declared is marked, never deleted, because placements may still name it.
	batch := &pgx.Batch{}
	batch.Queue(forgetShards, m.ID)
	batch.Queue(dropHosts, m.ID)
	batch.Queue(countAnew, m.ID)
	var closed *string
	if version > 1 {
		closed = new(notEnrolled)
	}
	for place, s := range m.Declared.Shards {
		batch.Queue(putShard, m.ID, s.ID, s.Class, s.Registration, s.Transfer, int64(s.Capacity), closed)
		batch.Queue(putPlace, m.ID, s.ID, place)
		for i, h := range s.Hosts {
			batch.Queue(putHost, m.ID, s.ID, h.Full(), h.DC, i)
		}
	}
	if version == 1 {
		keys, shards := m.parts()
		batch.Queue(seedParts, m.ID, keys, shards)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	var key, shard string
	err := tx.QueryRow(ctx, homeless, m.ID).Scan(&key, &shard)
	if err == nil {
		return &MapError{m.ID, fmt.Sprintf("shard %q is not declared any more, but keys such as %q live there; declare it with transfer: "+
			"false and drain it first", shard, key)}
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return nil
}

// parts returns the initial placements of slots and stretches.
func (m *Map) parts() (keys, owners []string) {
	put := func(key, shard string) { keys, owners = append(keys, key), append(owners, shard) }
	said := false
	for _, s := range m.Declared.Shards {
		if m.layout.strategy == "range" {
			for _, low := range s.From {
				put("["+low, s.ID)
			}
		}
		for _, text := range s.Slots {
			said = true
			first, last, _ := language.SlotRange(text)
			for slot := first; slot <= last && m.layout.strategy == "slots"; slot++ {
				put("#"+strconv.Itoa(slot), s.ID)
			}
		}
	}
	if m.layout.strategy != "slots" || said {
		return keys, owners
	}
	for slot := range m.layout.slots {
		put("#"+strconv.Itoa(slot), m.Declared.Shards[slot*len(m.Declared.Shards)/m.layout.slots].ID)
	}
	return keys, owners
}
