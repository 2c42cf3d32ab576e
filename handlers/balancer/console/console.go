// Package console has the page of clusters: their workers, and what the balancer makes of them.
package console

import (
	"context"
	_ "embed" // the template
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/api/ui"
	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/seen"
	"procaas/engine/credentials"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// Clusters is what the page needs of clusters and their balancer.
type Clusters interface {
	Bundle() *tree.Bundle
	ClusterStatus(ctx context.Context, cluster string) (clusters.ClusterStatus, error)
	ClusterMoves(ctx context.Context, cluster string) ([]clusters.MoveLog, error)
}

//go:embed clusters.html
var text string

// Pages returns the pages.
func Pages(of Clusters) []ui.Page {
	p := &pages{of: of, seen: map[string][]point{}}
	return []ui.Page{{
		Pattern: "clusters", Menu: "Clusters", Before: "Shards", Template: text, Data: p.clusters,
		Chart: &ui.Chart{Name: "cluster", Sample: p.sample, Columns: p.columns},
	}}
}

type pages struct {
	of Clusters

	mu   sync.Mutex         // guards seen
	seen map[string][]point // by cluster; an hour
}

// A point is how even the load of a cluster was.
type point struct {
	at       time.Time // of the balancer's reports
	gini     float64   // 0 is even, 1 is all on one worker
	requests float64   // in a second
	drops    float64   // likewise
}

// sample reads how even clusters are. What cannot be read is left out.
func (p *pages) sample(ctx context.Context) {
	for _, of := range language.ClustersOf(p.of.Bundle()) {
		s, err := p.of.ClusterStatus(ctx, of.ID)
		if err != nil || s.State.Time.IsZero() {
			continue
		}
		p.note(of.ID, point{at: s.State.Time, gini: s.State.Gini, requests: s.State.Requests, drops: s.State.Drops})
	}
}

// note keeps a point, unless the balancer has seen nothing since the last one.
func (p *pages) note(cluster string, now point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	points := p.seen[cluster]
	if n := len(points); n == 0 || now.at.After(points[n-1].at) {
		p.seen[cluster] = seen.Keep(append(points, now))
	}
}

// past returns the points of a cluster, the oldest first.
func (p *pages) past(cluster string) []point {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen[cluster])
}

// columns returns the points of a cluster for the chart.
func (p *pages) columns(cluster string) [][]any {
	columns := make([][]any, 4)
	for _, x := range p.past(cluster) {
		for i, v := range []any{x.at.Unix(), x.gini, x.requests, x.drops} {
			columns[i] = append(columns[i], v)
		}
	}
	return columns
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
func (p *pages) clusters(r *http.Request, _ credentials.Grant) (title string, data any, err error) {
	var d clustersData
	for _, of := range language.ClustersOf(p.of.Bundle()) {
		one := clusterData{Gini: drawing.Series(p.past(of.ID), func(x point) float64 { return x.gini })}
		if one.ClusterStatus, err = p.of.ClusterStatus(r.Context(), of.ID); err != nil {
			return "", nil, err
		}
		if one.Moves, err = p.of.ClusterMoves(r.Context(), of.ID); err != nil {
			return "", nil, err
		}
		one.Moves = slices.Clone(one.Moves[max(0, len(one.Moves)-shownMoves):])
		slices.Reverse(one.Moves)
		for _, w := range one.State.Workers {
			one.Most = max(one.Most, w.Weight)
		}
		one.Levers = leversOf(one.ClusterStatus.Levers)
		d.Clusters = append(d.Clusters, one)
	}
	return "Clusters", d, nil
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
