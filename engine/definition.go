package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"procaas/dsl"
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/engine/fallback"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// A definition is a bundle made ready to run: with its plans, the HTTP client
// that reaches its services, and what intake asks of its automata. It is
// immutable.
type definition struct {
	bundle   *dsl.Bundle
	plans    []*planner.Plan
	byID     map[string]*planner.Plan
	client   *http.Client
	workers  *http.Client // reaches the workers of clusters
	runID    func(model.Event) string
	events   []string       // types that activate a pipeline, for suggestions
	declared map[string]any // configs, with their first values

	contracts map[string]*contracts.Contract // of configs that have a schema

	// from holds, for each flow whose automaton rejects, the states in which
	// each event type is accepted.
	from map[string]map[string][]string

	needed  map[string]bool        // services that critical handlers call
	counted map[*planner.Step]bool // what their calls come to decides about fallbacks

	fallbacks *fallback.Rules // what decides about those of its handlers; nil when none has one

	aheads sync.Map // path → what runs that wait there may come to, a []*Step

	live atomic.Pointer[liveConfigs] // the declared configs under the present settings
}

// errDefinition marks a definition that can never be used on this node: it is
// not in the store, or this program does not know its handler types.
var errDefinition = errors.New("definition cannot be used")

// newDefinition plans all pipelines of a bundle.
func newDefinition(b *dsl.Bundle, types []dsl.Type, maxConns int, targets *outbound.Targets, log *slog.Logger) (*definition, error) {
	d := &definition{
		bundle: b, byID: map[string]*planner.Plan{}, client: outbound.ForServices(b, maxConns, targets, log),
		workers:  outbound.ForWorkers(b, targets),
		declared: map[string]any{}, contracts: map[string]*contracts.Contract{}, from: map[string]map[string][]string{},
		needed: map[string]bool{},
	}
	m := planner.NewPlanner(b, types)
	for _, p := range b.Pipelines {
		plan, err := m.Plan(p)
		if err != nil {
			return nil, fmt.Errorf("plan pipeline %s: %w", p.ID, err)
		}
		d.plans = append(d.plans, plan)
		d.byID[p.ID] = plan
		if len(p.On) == 0 && !p.IsCalled() {
			d.events = append(d.events, p.ID)
		}
		d.events = append(d.events, p.On...)
		for _, s := range plan.Written {
			if s.Service != nil && s.Handler.IsCritical() {
				d.needed[s.Service.ID] = true
			}
			if s.Handler.Await != nil {
				d.events = append(d.events, s.Handler.Await.Event...)
			}
		}
	}
	slices.Sort(d.events)
	d.events = slices.Compact(d.events)
	for _, c := range b.Configs {
		d.declared[c.Name] = c.Value
		if contract := c.Contract(); contract != nil {
			d.contracts[c.Name] = contract
		}
	}
	for _, t := range b.Triggers {
		if _, err := newClockwork(t); err != nil {
			return nil, err
		}
	}
	var watched []fallback.Watched
	if watched, d.counted = fallback.WatchedIn(d.plans); watched != nil {
		d.fallbacks = fallback.NewRules(watched)
	}
	for _, f := range b.Flows {
		if f.States != nil && f.States.Otherwise == "reject" {
			d.from[f.ID] = acceptingStates(f.States, d.events)
		}
	}
	return d, nil
}

// acceptingStates lists for each event type the states that it may come in. The
// empty state stands beside the initial one: it is that of a new entity.
func acceptingStates(a *dsl.Automaton, events []string) map[string][]string {
	from := map[string][]string{}
	for _, e := range events {
		from[e] = []string{} // no transition at all: rejected in any state
	}
	for _, t := range a.Transitions {
		for _, on := range t.On {
			from[on] = append(from[on], t.From...)
			if slices.Contains(t.From, a.Initial) {
				from[on] = append(from[on], "")
			}
		}
	}
	return from
}

// A library keeps definitions: the present one, for new events, and those that
// runs began with.
type library struct {
	store    store.Bundles
	types    []HandlerType
	services map[string]string // see Options.ServiceURLs
	byName   map[string]HandlerType
	maxConns int
	targets  *outbound.Targets
	log      *slog.Logger
	runID    func(model.Event) string // makes the id of a new run

	current atomic.Pointer[definition]
	loads   singleflight.Group

	mu    sync.Mutex // guards cache
	cache []*definition
}

// maxDefinitions bounds the definitions in memory. Runs that go on with another
// one hold it themselves, so the bound costs only time.
const maxDefinitions = 16

// add compiles a bundle and keeps it.
func (l *library) add(b *dsl.Bundle) (*definition, error) {
	if d := l.cached(b.Hash); d != nil {
		return d, nil
	}
	d, err := newDefinition(b, Types(l.types), l.maxConns, l.targets, l.log)
	if err != nil {
		return nil, err
	}
	d.runID = l.runID
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache = append(l.cache, d)
	if len(l.cache) > maxDefinitions {
		l.cache[0].client.CloseIdleConnections()
		l.cache[0].workers.CloseIdleConnections()
		l.cache = slices.Delete(l.cache, 0, 1)
	}
	return d, nil
}

// cached finds a definition in memory, and remembers that it was needed.
func (l *library) cached(hash string) *definition {
	if d := l.current.Load(); d != nil && d.bundle.Hash == hash {
		return d
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.cache, func(d *definition) bool { return d.bundle.Hash == hash })
	if i < 0 {
		return nil
	}
	d := l.cache[i]
	l.cache = append(slices.Delete(l.cache, i, i+1), d)
	return d
}

// get gives the definition with a hash, from memory or from the store. The error
// is errDefinition when trying again is useless.
func (l *library) get(ctx context.Context, hash string) (*definition, error) {
	if d := l.cached(hash); d != nil {
		return d, nil
	}
	d, err, _ := l.loads.Do(hash, func() (any, error) { return l.load(ctx, hash) })
	if err != nil {
		return nil, err
	}
	return d.(*definition), nil
}

// load reads a definition from the store.
func (l *library) load(ctx context.Context, hash string) (*definition, error) {
	data, err := l.store.Bundle(ctx, hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s is not in the store", errDefinition, hash)
	}
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", hash, err)
	}
	var files []diag.File
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDefinition, hash, err)
	}
	b, found := dsl.Load(files, dsl.Options{Types: Types(l.types), ServiceURLs: l.services})
	if b == nil {
		return nil, fmt.Errorf("%w: %s: %s", errDefinition, hash, firstError(found))
	}
	d, err := l.add(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDefinition, hash, err)
	}
	return d, nil
}

// close ends the idle connections of all definitions.
func (l *library) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.cache {
		d.client.CloseIdleConnections()
		d.workers.CloseIdleConnections()
	}
}

// firstError tells the first error of a bundle that did not load.
func firstError(found []diag.Diagnostic) string {
	for _, d := range found {
		if d.Severity == diag.Error {
			return d.String() + ": " + d.Message
		}
	}
	return "it has errors"
}
