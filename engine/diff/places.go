package diff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/tree"
)

// This file compares shard maps and clusters. Their changes may be dangerous for keys that are
// already placed, so it adds warnings.

// places compares the shard maps and the clusters of two bundles.
func (c *comparison) places(a, b *tree.Bundle) {
	list(c, ShardMap, tree.ShardMapsOf(a), tree.ShardMapsOf(b), edits[*tree.ShardMap]{
		name:  func(m *tree.ShardMap) string { return m.ID },
		added: "enroll its shards before anybody writes to them",
		removed: "nobody is told any more where its keys live; its fences and publications stay on its shards until procaas shard remove, " +
			"and its placements stay in the store, and count again if it comes back",
		both: c.shardMaps,
	})
	list(c, Cluster, tree.ClustersOf(a), tree.ClustersOf(b), edits[*tree.Cluster]{
		name:    func(v *tree.Cluster) string { return v.ID },
		removed: "nobody is told any more which worker serves its keys",
		both:    c.clusters,
	})
}

// edits says how things of one kind are identified, and what it means when one is added, removed or
// kept.
type edits[T any] struct {
	name           func(T) string
	added, removed string
	both           func(a, b T)
}

// list is [pairs] with a warning for added and removed elements.
func list[T any](c *comparison, what string, a, b []T, e edits[T]) {
	from := len(c.found)
	pairs(c, what, a, b, e.name, e.both)
	for i := range c.found[from:] {
		d := &c.found[from+i]
		switch {
		case d.What != what:
		case d.Change == Added:
			d.Why = e.added
		case d.Change == Removed:
			d.Why = e.removed
		}
	}
}

// warned adds a difference if fields differ, with its meaning.
func (c *comparison) warned(what, name string, fields []FieldChange, means func(field FieldChange) string) {
	var why []string
	for _, f := range fields {
		if text := means(f); text != "" && !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	if len(fields) > 0 {
		c.add(what, name, Changed, strings.Join(why, "; "), fields...)
	}
}

func (c *comparison) shardMaps(a, b *tree.ShardMap) {
	c.warned(ShardMap, b.ID, fieldChanges(a, b, "tables", "shards"), func(f FieldChange) string { return mapWarning(a, b, f) })
	list(c, Table, a.Tables, b.Tables, edits[*tree.ShardTable]{
		name:    func(t *tree.ShardTable) string { return b.ID + "/" + t.Table },
		added:   "enroll the shards again, or its rows do not move with their keys",
		removed: "its rows stay behind when their keys move",
		both: func(old, now *tree.ShardTable) {
			c.warned(Table, b.ID+"/"+now.Table, fieldChanges(old, now, "table"), func(FieldChange) string {
				return "the rows of a key are found by other columns; enroll the shards again"
			})
		},
	})
	list(c, Shard, a.Shards, b.Shards, edits[*tree.Shard]{
		name:    func(s *tree.Shard) string { return b.ID + "/" + s.ID },
		added:   "enroll it first; no key lives there until one is placed or moved there",
		removed: "refused while keys live there: drain it with transfer: false first",
		both:    func(old, now *tree.Shard) { c.shards(b.ID+"/"+now.ID, old, now) },
	})
}

// mapWarning returns what the change of a field means for placed keys.
func mapWarning(a, b *tree.ShardMap, f FieldChange) string {
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

func (c *comparison) shards(name string, a, b *tree.Shard) {
	fields := fieldChanges(a, b, "hosts", "from")
	if !slices.Equal(a.From, b.From) {
		fields = append(fields, FieldChange{"from", bounds(a.From), bounds(b.From)})
	}
	c.warned(Shard, name, fields, func(f FieldChange) string {
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
	address := func(h *tree.ShardHost) string { return h.Full() }
	stays := slices.ContainsFunc(b.Hosts, func(h *tree.ShardHost) bool {
		return slices.ContainsFunc(a.Hosts, func(old *tree.ShardHost) bool { return old.Full() == h.Full() })
	})
	replaced := ""
	if !stays {
		replaced = "no host of the shard stays: the rows of its keys, and the fences, have to be on the new ones"
	}
	list(c, Host, a.Hosts, b.Hosts, edits[*tree.ShardHost]{
		name:  func(h *tree.ShardHost) string { return name + "/" + address(h) },
		added: replaced,
		both: func(old, now *tree.ShardHost) {
			c.changed(Host, name+"/"+address(now), fieldChanges(old, now, "address"))
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

func (c *comparison) clusters(a, b *tree.Cluster) {
	fields := fieldChanges(a, b, "workers")
	if b.Map != nil && b.Map.File != "" {
		fields = append(fields, valueChanges("map.file", a.Held, b.Held)...)
	}
	c.warned(Cluster, b.ID, fields, func(f FieldChange) string {
		if f.Field != "partitions" {
			return ""
		}
		few, many := min(a.Partitions, b.Partitions), max(a.Partitions, b.Partitions)
		return fmt.Sprintf("about %.0f %% of the keys fall into other partitions, and so to other workers; declare a new cluster",
			100*float64(many-few)/float64(many))
	})
	name := func(w *tree.ClusterWorker) string { return b.ID + "/" + w.ID }
	list(c, Worker, a.Workers, b.Workers, edits[*tree.ClusterWorker]{
		name: name,
		both: func(old, now *tree.ClusterWorker) { c.changed(Worker, name(now), fieldChanges(old, now)) },
	})
}
