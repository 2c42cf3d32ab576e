package definitions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"procaas/dsl"
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/canary"
	"procaas/engine/diff"
	"procaas/engine/fallback"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/planner"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// A Definition is a bundle that is ready to run. It has the plans, the HTTP client for its
// services, and the accepted states for intake. It is immutable.
type Definition struct {
	Bundle   *tree.Bundle
	Plans    []*planner.Plan
	ByID     map[string]*planner.Plan
	Client   *http.Client
	Secured  map[string]*http.Client // of services with tls, by id
	RunID    func(model.Event) string
	Events   []string       // types of events that start a pipeline, for suggestions
	Declared map[string]any // configs with their declared values

	contracts map[string]*contracts.Contract // of configs with a schema
	times     []tree.LiveTime                // durations that configs decide

	// From lists, for each flow whose automaton rejects events, the states in which each event type
	// is accepted.
	From map[string]map[string][]string

	Needed  map[string]bool        // services that critical handlers call
	Counted map[*planner.Step]bool // steps whose calls count for fallbacks

	Degrades map[string]bool // pipelines with a handler that has a fallback, by id

	Instant map[string]bool // types of events whose runs end as soon as they begin, whichever pipeline serves them

	Fallbacks *fallback.Rules // the rules of its fallbacks; nil if no handler has one

	aheads sync.Map // path → the handlers that runs may reach from there, a []*Step

	live atomic.Pointer[liveConfigs] // the declared configs with the current settings
}

// ErrUnusable marks a definition that this node can never use: it is not in the store, or this
// program does not know its handler types.
var ErrUnusable = errors.New("definition cannot be used")

// ErrMissing marks an [ErrUnusable] definition that is not in the store.
var ErrMissing = errors.New("is not in the store")

// newDefinition plans all pipelines of a bundle. Plans of the current definition serve again where they would be the same.
func (l *Library) newDefinition(b *tree.Bundle) (*Definition, error) {
	d := &Definition{
		Bundle: b, ByID: map[string]*planner.Plan{}, Client: outbound.ForServices(b, l.MaxConns, l.Targets, l.Log),
		Declared: map[string]any{}, contracts: map[string]*contracts.Contract{}, From: map[string]map[string][]string{},
		Needed: map[string]bool{}, Degrades: map[string]bool{}, Instant: map[string]bool{},
	}
	d.Secured = l.Certificates.Secured(d.Client, b)
	m := planner.NewPlanner(b, l.Types)
	if present := l.Present(); present != nil {
		m.Reuse(present.Plans)
	}
	for _, p := range b.Pipelines {
		plan, err := m.Plan(p)
		if err != nil {
			return nil, fmt.Errorf("plan pipeline %s: %w", p.ID, err)
		}
		d.Plans = append(d.Plans, plan)
		d.ByID[p.ID] = plan
		if len(p.On) == 0 && !p.IsCalled() {
			d.Events = append(d.Events, p.ID)
		}
		d.Events = append(d.Events, p.On...)
		for _, s := range plan.Written {
			if s.Service != nil && s.Handler.IsCritical() {
				d.Needed[s.Service.ID] = true
			}
			if s.Fallback() != nil {
				d.Degrades[p.ID] = true
			}
			if s.Handler.Await != nil {
				d.Events = append(d.Events, s.Handler.Await.Event...)
			}
		}
	}
	slices.Sort(d.Events)
	d.Events = slices.Compact(d.Events)
	for _, event := range d.Events {
		served := b.On(event)
		d.Instant[event] = len(served) > 0 && !slices.ContainsFunc(served, func(p *tree.Pipeline) bool { return !d.ByID[p.ID].IsInstant() })
	}
	for _, p := range b.Pipelines {
		d.times = append(d.times, p.LiveTimes()...)
	}
	for _, c := range b.Configs {
		d.Declared[c.Name] = c.Value
		if contract := c.Contract; contract != nil {
			d.contracts[c.Name] = contract
		}
	}
	for _, t := range b.Triggers {
		if err := triggers.Check(t); err != nil {
			return nil, err
		}
	}
	var watched []fallback.Watched
	watched, d.Counted = fallback.WatchedIn(d.Plans)
	if watched != nil {
		d.Fallbacks = fallback.NewRules(watched)
	}
	for _, f := range b.Flows {
		if f.States != nil && f.States.Otherwise == "reject" {
			d.From[f.ID] = acceptingStates(f.States, d.Events)
		}
	}
	return d, nil
}

// acceptingStates lists the states in which each event type is accepted. The empty state, that of a
// new entity, is listed beside the initial state.
func acceptingStates(a *tree.Automaton, events []string) map[string][]string {
	from := map[string][]string{}
	for _, e := range events {
		from[e] = []string{} // no transition: rejected in every state
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

// A Library caches definitions: the current one for new events, and those of runs.
type Library struct {
	Store    store.Bundles
	Language *tree.Language
	Types    []tree.Type
	Compare  []diff.Comparer   // of add-ons
	Services map[string]string // URLs of services; see Options.ServiceURLs
	MaxConns int
	Targets  *outbound.Targets

	Certificates outbound.Certificates // for services with tls

	Log   *slog.Logger
	RunID func(model.Event) string // makes the id of a new run

	current  atomic.Pointer[Definition]
	trial    atomic.Pointer[canary.State] // the last trial that this node can serve
	reloaded store.Broadcast              // there is another current definition
	loads    singleflight.Group
	unusable sync.Map // hash → why this program can never use the definition

	kept kept
}

// Add compiles a bundle and caches it.
func (l *Library) Add(b *tree.Bundle) (*Definition, error) {
	if d := l.cached(b.Hash); d != nil {
		return d, nil
	}
	d, err := l.newDefinition(b)
	if err != nil {
		return nil, err
	}
	d.RunID = l.RunID
	l.kept.put(d, time.Now())
	l.Trim(time.Now())
	return d, nil
}

// Present returns the definition for new events. It is nil before the first swap.
func (l *Library) Present() *Definition { return l.current.Load() }

// Reloaded returns a channel that is closed when the current definition changes. Call it before
// Present, so that no change is missed.
func (l *Library) Reloaded() <-chan struct{} { return l.reloaded.Next() }

// Swap makes d the current definition, and returns the one before.
func (l *Library) Swap(d *Definition) (before *Definition) {
	before = l.current.Swap(d)
	if before != nil && before != d {
		l.kept.unused(before)
		l.Trim(time.Now())
	}
	l.reloaded.Send()
	return before
}

// Serving returns the versions of new runs as far as this node knows. The store has the final say.
func (l *Library) Serving() model.Split {
	if t := l.Trial(); t != nil {
		return t.Split()
	}
	return model.Split{Old: l.Present().Bundle.Hash}
}

// Trial returns the trial of a new version beside the current one, or nil.
func (l *Library) Trial() *canary.State {
	if t := l.trial.Load(); t.Runs() && t.Old == l.Present().Bundle.Hash {
		return t
	}
	return nil
}

// Shadow returns the trial of a version in the shadow, which no run uses, or nil.
func (l *Library) Shadow() *canary.State {
	if t := l.trial.Load(); t.IsInShadow() && t.Old == l.Present().Bundle.Hash {
		return t
	}
	return nil
}

// Tried returns the new version on trial, or nil.
func (l *Library) Tried() *Definition {
	if t := l.Trial(); t != nil {
		return l.cached(t.New)
	}
	return nil
}

// cached returns a definition from memory, or nil, and marks it as used.
func (l *Library) cached(hash string) *Definition {
	if d := l.Present(); d != nil && d.Bundle.Hash == hash {
		return d
	}
	return l.kept.get(hash, time.Now())
}

// Trim drops definitions that no run of this node uses, and that none has used for a while if they are large. New events
// need the current one, and perhaps the one on trial.
func (l *Library) Trim(now time.Time) {
	t := l.trial.Load()
	l.kept.trim(now, func(d *Definition) bool { return d == l.Present() || t.Lasts() && d.Bundle.Hash == t.New })
}

// Get returns the definition with a hash, from memory or from the store. The error is ErrUnusable
// if a retry is useless.
func (l *Library) Get(ctx context.Context, hash string) (*Definition, error) {
	if d := l.cached(hash); d != nil {
		return d, nil
	}
	d, err, _ := l.loads.Do(hash, func() (any, error) { return l.load(ctx, hash) })
	if err != nil {
		return nil, err
	}
	return d.(*Definition), nil
}

// Read reads the bundle of a definition from the store without caching it. The error is ErrUnusable
// if this program cannot read it.
func (l *Library) Read(ctx context.Context, hash string) (*tree.Bundle, error) {
	files, err := l.files(ctx, hash)
	if err != nil {
		return nil, err
	}
	return l.parse(hash, files)
}

// parse parses a definition from its files.
func (l *Library) parse(hash string, files []diag.File) (*tree.Bundle, error) {
	b, found := dsl.Load(files, dsl.Options{Language: l.Language, Types: l.Types, ServiceURLs: l.Services, Stored: true})
	if b == nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrUnusable, hash, FirstError(found))
	}
	return b, nil
}

// load reads a definition from the store and caches it.
func (l *Library) load(ctx context.Context, hash string) (*Definition, error) {
	if err, known := l.unusable.Load(hash); known {
		return nil, err.(error)
	}
	files, err := l.files(ctx, hash)
	if err != nil {
		return nil, err
	}
	b, err := l.parse(hash, files)
	if err == nil {
		var d *Definition
		if d, err = l.Add(b); err == nil {
			return d, nil
		}
		err = fmt.Errorf("%w: %s: %w", ErrUnusable, hash, err)
	}
	l.unusable.Store(hash, err)
	return nil, err
}

// CloseIdleConnections closes the idle connections of all definitions.
func (l *Library) CloseIdleConnections() {
	for _, d := range l.kept.all() {
		d.Client.CloseIdleConnections()
	}
}

// FirstError returns the first error of a bundle that did not load.
func FirstError(found []diag.Diagnostic) string {
	for _, d := range found {
		if d.Severity == diag.Error {
			return d.String() + ": " + d.Message
		}
	}
	return "it has errors"
}

// Serves reports whether a pipeline of the definition accepts events of a type in a flow.
func (d *Definition) Serves(flow, eventType string) bool {
	for _, p := range d.Bundle.On(eventType) {
		if p.FlowID() == flow {
			return true
		}
	}
	return false
}

// Keeps returns how long an event is kept for a run of its key that has not begun. 0 means not at all.
func (d *Definition) Keeps(flow, eventType string) time.Duration {
	if awaiting := d.Bundle.Awaiting(eventType); len(awaiting) == 0 || awaiting[0].FlowID() != flow {
		return 0
	}
	return d.Bundle.Keeps(eventType)
}

// TypesOf lists the events that start a pipeline.
func TypesOf(p *tree.Pipeline) []string {
	if len(p.On) == 0 {
		return []string{p.ID}
	}
	return p.On
}
