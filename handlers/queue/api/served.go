package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/store"
	"procaas/handlers/queue/language"
)

// Any name is a type of tasks, so that programs need no declaration. So a mistyped name is a type,
// too, and its tasks would wait forever unnoticed. This file distinguishes the two. A type is
// served if a pipeline declares it, a worker has asked for its tasks, or an operator has opened it.

// servedTypes caches what the store knows about that. Putting tasks of a served type reads the
// store once a minute, and of other types once a second.
type servedTypes struct {
	mu     sync.Mutex // guards the following
	looked time.Time
	types  map[string]bool
	warned map[string]bool // types that the log has warned of

	unserved map[string]bool // types with tasks that no known worker does
	counted  time.Time       // when these were read
}

const (
	servedFor   = time.Minute     // how long a served type is cached
	unservedFor = time.Second     // how long an unserved type is cached
	servedTime  = 2 * time.Second // timeout of the store
	warnedMost  = 1000
)

// errUnlooked reports that it is unknown which types are served.
var errUnlooked = errors.New("it is not known which types of tasks are served")

// known reports whether a type is served, and returns all served types.
func (g *Group) known(ctx context.Context, kind string) (bool, map[string]bool, error) {
	k := &g.served
	k.mu.Lock()
	defer k.mu.Unlock()
	age := time.Since(k.looked)
	if k.types != nil && (age < unservedFor || age < servedFor && k.types[kind]) {
		return k.types[kind], k.types, nil
	}
	ctx, cancel := context.WithTimeout(ctx, servedTime)
	defer cancel()
	list, err := g.Tasks.Admin.KnownTaskTypes(ctx)
	if err != nil {
		return false, nil, fmt.Errorf("%w: %w", errUnlooked, err)
	}
	types := make(map[string]bool, len(list)) // a new one, because others may still read the old one
	for _, t := range list {
		types[t] = true
	}
	k.types, k.looked = types, time.Now()
	return types[kind], types, nil
}

// mayServe checks whether any worker does tasks of a type. If none is known, it returns a warning,
// or an error if the server is strict.
func (g *Group) mayServe(ctx context.Context, kind string, pipeline *tree.Pipeline) (warning string, err error) {
	if pipeline != nil {
		return "", nil
	}
	known, types, err := g.known(ctx, kind)
	if known || err != nil && !g.Strict {
		return "", nil // an unreachable store refuses the tasks itself
	}
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("no pipeline with a queue section is named %q, and nobody has asked for such tasks in the last %d days",
		kind, int(store.TaskFactsKept.Hours()/24))
	if near := g.nearType(kind, types); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	if g.Strict {
		return "", unknownTaskType.New("%s; start its workers first, declare it, or open it: procaas queue resume %s", text,
			kind)
	}
	if err := g.mayAddType(ctx, kind, text); err != nil {
		return "", err
	}
	g.warnOf(kind, text)
	return text, nil
}

// mostUndeclared bounds the unserved types with tasks, because each has its own numbers and
// metrics.
const mostUndeclared = 1000

// mayAddType refuses tasks of a new unserved type if there are too many.
func (g *Group) mayAddType(ctx context.Context, kind, text string) error {
	k := &g.served
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unserved == nil || time.Since(k.counted) >= servedFor || len(k.unserved) >= mostUndeclared && time.Since(k.counted) >= unservedFor {
		ctx, cancel := context.WithTimeout(ctx, servedTime)
		defer cancel()
		stats, err := g.Tasks.Admin.TaskStats(ctx)
		if err != nil {
			return nil // the store that cannot be asked says so when it is given the tasks
		}
		k.unserved, k.counted = map[string]bool{}, time.Now()
		for _, t := range stats {
			if g.Engine.Bundle().Pipeline(t.Type) == nil && !k.types[t.Type] {
				k.unserved[t.Type] = true
			}
		}
	}
	if !k.unserved[kind] && len(k.unserved) >= mostUndeclared {
		return unknownTaskType.New("%s; there are tasks of %d such types already, which is the most: start workers of this "+
			"type first, declare it, or open it: procaas queue resume %s",
			text, len(k.unserved), kind)
	}
	k.unserved[kind] = true
	return nil
}

// unheard warns an operator of a type without pipeline, worker and task. It is empty if the type is
// known, or if that cannot be found out.
func (g *Group) unheard(ctx context.Context, kind string) string {
	if p := g.Engine.Bundle().Pipeline(kind); p != nil {
		return ""
	}
	known, types, err := g.known(ctx, kind)
	if known || err != nil {
		return ""
	}
	stats, err := g.Tasks.Admin.TaskStats(ctx)
	if err != nil || slices.ContainsFunc(stats, func(t store.TaskTypeStats) bool { return t.Type == kind }) {
		return ""
	}
	all := maps.Clone(types)
	for _, t := range stats {
		all[t.Type] = true
	}
	text := fmt.Sprintf("type %q has no task, no worker and no pipeline", kind)
	if near := g.nearType(kind, all); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return text
}

// mustBeHeard refuses such a type.
func (g *Group) mustBeHeard(ctx context.Context, kind string) error {
	if text := g.unheard(ctx, kind); text != "" {
		return unknownTaskType.New("%s", text)
	}
	return nil
}

// nearType returns the served type with the most similar name.
func (g *Group) nearType(kind string, types map[string]bool) string {
	var all []string
	for _, p := range g.Engine.Bundle().Pipelines {
		if language.Of(p) != nil {
			all = append(all, p.ID)
		}
	}
	for t := range types {
		all = append(all, t)
	}
	slices.Sort(all)
	return diag.Suggest(kind, all)
}

// warnOf logs, once per type, that tasks wait without a worker.
func (g *Group) warnOf(kind, text string) {
	k := &g.served
	k.mu.Lock()
	told := k.warned[kind] || len(k.warned) >= warnedMost
	if !told {
		if k.warned == nil {
			k.warned = map[string]bool{}
		}
		k.warned[kind] = true
	}
	k.mu.Unlock()
	if !told {
		g.Log.Warn("tasks were put that may wait for ever", "type", kind, "why", text)
	}
}
