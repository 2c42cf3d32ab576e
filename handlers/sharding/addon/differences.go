package addon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/tree"
	"procaas/engine/diff"
	"procaas/handlers/sharding/language"
)

// These are the kinds of things of shard maps.
const (
	shardMapKind = "shard-map"
	tableKind    = "table"
	shardKind    = "shard"
	hostKind     = "host" // of a shard
)

// compareShardMaps compares shard maps. Their changes may be dangerous for keys that are already placed, so it adds warnings.
func compareShardMaps(c *diff.Comparison, a, b *tree.Bundle) {
	diff.List(c, shardMapKind, language.ShardMapsOf(a), language.ShardMapsOf(b), diff.Edits[*language.ShardMap]{
		Name:  func(m *language.ShardMap) string { return m.ID },
		Added: "enroll its shards before anybody writes to them",
		Removed: "nobody is told any more where its keys live; its fences and publications stay on its shards until procaas shard remove, " +
			"and its placements stay in the store, and count again if it comes back",
		Both: func(a, b *language.ShardMap) { compareShardMap(c, a, b) },
	})
}

func compareShardMap(c *diff.Comparison, a, b *language.ShardMap) {
	c.Warned(shardMapKind, b.ID, diff.Fields(a, b, "tables", "shards"), func(f diff.FieldChange) string { return mapWarning(a, b, f) })
	diff.List(c, tableKind, a.Tables, b.Tables, diff.Edits[*language.ShardTable]{
		Name:    func(t *language.ShardTable) string { return b.ID + "/" + t.Table },
		Added:   "enroll the shards again, or its rows do not move with their keys",
		Removed: "its rows stay behind when their keys move",
		Both: func(old, now *language.ShardTable) {
			c.Warned(tableKind, b.ID+"/"+now.Table, diff.Fields(old, now, "table"), func(diff.FieldChange) string {
				return "the rows of a key are found by other columns; enroll the shards again"
			})
		},
	})
	diff.List(c, shardKind, a.Shards, b.Shards, diff.Edits[*language.Shard]{
		Name:    func(s *language.Shard) string { return b.ID + "/" + s.ID },
		Added:   "enroll it first; no key lives there until one is placed or moved there",
		Removed: "refused while keys live there: drain it with transfer: false first",
		Both:    func(old, now *language.Shard) { compareShard(c, b.ID+"/"+now.ID, old, now) },
	})
}

// mapWarning returns what the change of a field means for placed keys.
func mapWarning(a, b *language.ShardMap, f diff.FieldChange) string {
	switch f.Field {
	case "strategy":
		return "refused where the map is kept already: placed keys would not be found; declare a new map"
	case "slots":
		if b.Strategy == "slots" {
			return "refused where the map is kept already: keys would fall into other slots than their rows; declare a new map"
		}
	case "key-type":
		switch b.Strategy {
		case "slots":
			return "keys fall into other slots than their rows; declare a new map"
		case "range":
			return "bounds are in another order, so that keys fall into other stretches than their rows; declare a new map"
		}
		if b.KeyType == "int" {
			return "placed keys that are no whole numbers are refused; enroll the shards again"
		}
		return "enroll the shards again"
	case "key":
		if len(b.Key) < len(a.Key) {
			return fmt.Sprintf("placements of keys with more than %s are not found any more", parts(len(b.Key)))
		}
		return "placements stay as they are, and their first part is read as " + b.Key[0]
	case "stays":
		return "rows in tables that are added stay where they are when their keys move; those that are dropped hold up transfers"
	case "connect", "connect.database":
		return "placements stay as they are: the rows of their keys, and the fences, have to be in the database that is named now"
	case "registration":
		if b.Registration == nil {
			return "keys that have no placement are unknown; those that have one stay"
		}
	}
	return ""
}

func parts(n int) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

func compareShard(c *diff.Comparison, name string, a, b *language.Shard) {
	fields := diff.Fields(a, b, "hosts", "from")
	if !slices.Equal(a.From, b.From) {
		fields = append(fields, diff.FieldChange{Field: "from", Old: bounds(a.From), New: bounds(b.From)})
	}
	c.Warned(shardKind, name, fields, func(f diff.FieldChange) string {
		switch f.Field {
		case "slots", "from":
			return "only a new map begins by it: keys that are placed stay, transfers move them"
		case "registration":
			if !b.Registration {
				return "it takes no new keys; those that are there stay"
			}
		case "transfer":
			if !b.Transfer {
				return "no keys are moved here; those that are there stay"
			}
		}
		return ""
	})
	address := func(h *language.ShardHost) string { return h.Full() }
	stays := slices.ContainsFunc(b.Hosts, func(h *language.ShardHost) bool {
		return slices.ContainsFunc(a.Hosts, func(old *language.ShardHost) bool { return old.Full() == h.Full() })
	})
	replaced := ""
	if !stays {
		replaced = "no host of the shard stays: the rows of its keys, and the fences, have to be on the new ones"
	}
	diff.List(c, hostKind, a.Hosts, b.Hosts, diff.Edits[*language.ShardHost]{
		Name:  func(h *language.ShardHost) string { return name + "/" + address(h) },
		Added: replaced,
		Both: func(old, now *language.ShardHost) {
			c.Changed(hostKind, name+"/"+address(now), diff.Fields(old, now, "address"))
		},
	})
}

// bounds formats lower bounds, one of which may be empty.
func bounds(from []string) string {
	quoted := make([]string, len(from))
	for i, low := range from {
		quoted[i] = strconv.Quote(low)
	}
	return strings.Join(quoted, ", ")
}
