package ui

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"procaas/engine"
	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/seen"
	"procaas/engine/api/ui/words"
	"procaas/engine/checkpoint"
	"procaas/engine/clusters"
	"procaas/engine/inbox"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/engine/transfers"
	"procaas/handlers/balancer/language"
)

// Tasks is what the console needs of the queue of tasks.
type Tasks interface {
	TaskStats(ctx context.Context) ([]store.TaskTypeStats, error)
	TaskTables(ctx context.Context) ([]store.TaskTable, error)
	PeekTasks(ctx context.Context, f store.TaskFilter) ([]store.QueuedTask, error)
}

// Shards is what the console needs of shard maps.
type Shards interface {
	MapViews(ctx context.Context) ([]transfers.ShardMapView, error)
	Shards(ctx context.Context, shardMap string) ([]transfers.ShardView, error)
}

// Clusters is what the console needs of clusters and their balancer.
type Clusters interface {
	ClusterStatus(ctx context.Context, cluster string) (clusters.ClusterStatus, error)
	ClusterMoves(ctx context.Context, cluster string) ([]clusters.MoveLog, error)
}

// Transfers is what the console needs of transfers between shards.
type Transfers interface {
	ShardTransfers(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error)
}

// Inbox is what the console needs of an inbox over several databases.
type Inbox interface {
	Inbox(ctx context.Context) (inbox.View, error)
}

var (
	_ Clusters  = (*engine.Engine)(nil)
	_ Transfers = (*engine.Engine)(nil)
)

type queueData struct {
	Waiting float64            // events of the inbox
	Oldest  float64            // seconds
	Parked  []stats.ParkedRuns // all that stand still; the most first
	Runs    []checkpoint.RunView
	Types   []store.TaskTypeStats
	Tables  []store.TaskTable
	Tasks   bool // there is a queue of tasks
	Cells   bool // the inbox is over several databases
	Now     time.Time
}

// systems are the pages of what stands beside the runs: tasks, shards, databases, clusters.
type systems struct{ *Console }

// queue shows what waits: events, and tasks by their types.
func (c systems) queue(w http.ResponseWriter, r *http.Request) error {
	d, err := c.queueData(r.Context())
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "queue", "Queue", d)
	return nil
}

func (c systems) queueData(ctx context.Context) (d queueData, err error) {
	n := c.o.Numbers()
	d = queueData{Waiting: n.Waiting, Oldest: n.Oldest, Tasks: c.o.Tasks != nil, Cells: c.o.Inbox != nil, Now: time.Now()}
	d.Parked = c.o.Engine.Backlog().Parked
	if d.Runs, _, err = c.o.Engine.List(ctx, store.RunFilter{Status: model.Waiting, Oldest: true, Limit: 10}); err != nil ||
		c.o.Tasks == nil {
		return d, err
	}
	if d.Types, err = c.o.Tasks.TaskStats(ctx); err != nil {
		return d, err
	}
	d.Tables, err = c.o.Tasks.TaskTables(ctx)
	return d, err
}

type taskTypeData struct {
	Stats store.TaskTypeStats
	Next  []store.QueuedTask // in the order in which they would be taken
	Taken []store.QueuedTask
	Dead  []store.QueuedTask
	Now   time.Time
}

// taskType shows the tasks of a type: who is next, who has them, and the dead letters.
func (c systems) taskType(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("type")
	if c.o.Tasks == nil {
		return notFound("This node has no task queue.")
	}
	all, err := c.o.Tasks.TaskStats(r.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s store.TaskTypeStats) bool { return s.Type == name })
	if i < 0 {
		var known []string
		for _, s := range all {
			known = append(known, s.Type)
		}
		return c.unknown("type of tasks", name, known)
	}
	d := taskTypeData{Stats: all[i], Now: time.Now()}
	for _, part := range []struct {
		state store.TaskState
		into  *[]store.QueuedTask
	}{{store.TaskReady, &d.Next}, {store.TaskRunning, &d.Taken}, {store.TaskFailed, &d.Dead}} {
		if *part.into, err = c.o.Tasks.PeekTasks(r.Context(), store.TaskFilter{
			Type: name, State: part.state, Limit: 20,
			MaxPayload: 64 << 10,
		}); err != nil {
			return err
		}
	}
	c.show(w, r, http.StatusOK, "tasks", name, d)
	return nil
}

type shardsData struct {
	Kept bool // there may be shard maps here
	Maps []shardMapData
}

type shardMapData struct {
	Map    transfers.ShardMapView
	Shards []transfers.ShardView
	Moving []transfers.ShardTransfer // and those that have ended last
}

// shards shows the maps with their shards and hosts.
func (c systems) shards(w http.ResponseWriter, r *http.Request) error {
	d, err := c.shardsData(r.Context())
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "shards", "Shards", d)
	return nil
}

func (c systems) shardsData(ctx context.Context) (d shardsData, err error) {
	if c.o.Shards == nil {
		return d, nil
	}
	d.Kept = true
	maps, err := c.o.Shards.MapViews(ctx)
	if err != nil {
		return d, err
	}
	for _, m := range maps {
		shards, err := c.o.Shards.Shards(ctx, m.ID)
		if err != nil {
			return d, err
		}
		one := shardMapData{Map: m, Shards: shards}
		if c.o.Transfers != nil {
			if one.Moving, err = c.o.Transfers.ShardTransfers(ctx, m.ID); err != nil {
				return d, err
			}
		}
		d.Maps = append(d.Maps, one)
	}
	return d, nil
}

type cellsData struct {
	Divided bool // the inbox is over several databases
	Slots   int
	Cells   []cellRow
	Under   []slotMoveRow // moves under way
	Past    []slotMoveRow // those that have ended, the last first
}

type cellRow struct {
	inbox.Cell
	Share float64 // of all slots
	More  bool    // Outbox was not counted to its end
}

type slotMoveRow struct {
	inbox.Move
	Frozen string // for how long its slots took nothing in; empty when they always did
	Lasted string
}

// cells shows the databases of the inbox, and the slots that move between them.
func (c systems) cells(w http.ResponseWriter, r *http.Request) error {
	d, err := c.cellsData(r.Context())
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "cells", "Inbox", d)
	return nil
}

// countedOutbox is how many events of an outbox are counted.
const countedOutbox = 1000

func (c systems) cellsData(ctx context.Context) (d cellsData, err error) {
	if c.o.Inbox == nil {
		return d, nil
	}
	v, err := c.o.Inbox.Inbox(ctx)
	if err != nil {
		return d, err
	}
	d.Divided, d.Slots = true, v.Slots
	for _, cell := range v.Cells {
		d.Cells = append(d.Cells, cellRow{cell, float64(cell.Slots) / float64(max(v.Slots, 1)), cell.Outbox >= countedOutbox})
	}
	for _, m := range v.Moves {
		row := slotMoveRow{Move: m, Lasted: words.Took(&m.Begun, m.Ended)}
		if m.FrozenS > 0 {
			row.Frozen = words.Span(time.Duration(m.FrozenS * float64(time.Second)))
		}
		if m.Ended == nil {
			d.Under = append(d.Under, row)
		} else {
			d.Past = append(d.Past, row)
		}
	}
	return d, nil
}

type clustersData struct {
	Clusters []clusterData
}

type clusterData struct {
	clusters.ClusterStatus
	Moves  []clusters.MoveLog // the last ones first
	Levers []leverRow
	Gini   []float64
	Most   float64 // weight of the heaviest worker
}

// A leverRow is a lever with what it is about.
type leverRow struct {
	What string
	clusters.Lever
}

// shownMoves is how many moves a page shows.
const shownMoves = 30

// clusters shows the workers of clusters, and what the balancer makes of them.
func (c systems) clusters(w http.ResponseWriter, r *http.Request) error {
	d, err := c.clustersData(r.Context())
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "clusters", "Clusters", d)
	return nil
}

func (c systems) clustersData(ctx context.Context) (d clustersData, err error) {
	if c.o.Clusters == nil {
		return d, nil
	}
	for _, of := range language.ClustersOf(c.o.Engine.Bundle()) {
		one := clusterData{Gini: drawing.Series(c.history.OfCluster(of.ID), func(p seen.ClusterPoint) float64 { return p.Gini })}
		if one.ClusterStatus, err = c.o.Clusters.ClusterStatus(ctx, of.ID); err != nil {
			return d, err
		}
		if one.Moves, err = c.o.Clusters.ClusterMoves(ctx, of.ID); err != nil {
			return d, err
		}
		one.Moves = slices.Clone(one.Moves[max(0, len(one.Moves)-shownMoves):])
		slices.Reverse(one.Moves)
		for _, w := range one.State.Workers {
			one.Most = max(one.Most, w.Weight)
		}
		one.Levers = leversOf(one.ClusterStatus.Levers)
		d.Clusters = append(d.Clusters, one)
	}
	return d, nil
}

// leversOf lists levers, those of the whole cluster first.
func leversOf(l clusters.Levers) (rows []leverRow) {
	if l.Frozen != nil {
		rows = append(rows, leverRow{"nothing moves", *l.Frozen})
	}
	if l.DryRun != nil {
		rows = append(rows, leverRow{"dry run: moves are decided and not made", *l.DryRun})
	}
	if l.Evacuate != nil {
		rows = append(rows, leverRow{"silent workers are left, however many", *l.Evacuate})
	}
	for _, kind := range []struct {
		word string
		of   map[string]clusters.Lever
	}{{"zone emptied: ", l.Zones}, {"worker banned: ", l.Banned}, {"worker emptied: ", l.Draining}} {
		for _, name := range slices.Sorted(maps.Keys(kind.of)) {
			rows = append(rows, leverRow{kind.word + name, kind.of[name]})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(l.Pins)) {
		rows = append(rows, leverRow{fmt.Sprintf("partition %d stays on %s", p, l.Pins[p].Worker), l.Pins[p]})
	}
	return rows
}

// sampleClusters reads how even clusters are. What cannot be read is left out.
func (c systems) sampleClusters(ctx context.Context) map[string]seen.ClusterPoint {
	out := map[string]seen.ClusterPoint{}
	if c.o.Clusters == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, seen.SampleEvery)
	defer cancel()
	for _, of := range language.ClustersOf(c.o.Engine.Bundle()) {
		if s, err := c.o.Clusters.ClusterStatus(ctx, of.ID); err == nil && !s.State.Time.IsZero() {
			out[of.ID] = seen.ClusterPoint{At: s.State.Time, Gini: s.State.Gini, Requests: s.State.Requests, Drops: s.State.Drops}
		}
	}
	return out
}
