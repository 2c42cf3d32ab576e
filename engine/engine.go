package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"procaas/dsl/tree"
	"procaas/engine/budget"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/explain"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/node"
	"procaas/engine/outbound"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/secrets"
	"procaas/engine/settings"
	"procaas/engine/stats"
	"procaas/engine/steering"
	"procaas/engine/store"
	"procaas/engine/watch"
	"procaas/engine/writes"
)

// Options configures an Engine. Store, Types and Bundle are required. [DefaultOptions] has defaults
// for the rest.
type Options struct {
	Store  store.Store   // shared by all nodes
	Types  []HandlerType // handler types that definitions may use; each name once
	Bundle *tree.Bundle  // the first definition; see Overrule

	Name        string             // of this node, for people
	Log         *slog.Logger       // nil logs nothing
	Metrics     *stats.Metrics     // nil counts nothing
	Tracer      trace.Tracer       // made with [tracing.SpanIDs]; nil traces nothing
	Notify      func(model.Notice) // receives what owners should know; may be nil
	MaxInFlight int                // the most runs that the node works on at once
	// Lease is how long a node may be silent before other nodes take over its runs.
	Lease   time.Duration
	Drain   time.Duration                     // how long a stopping node waits for calls in flight
	Secrets func(secrets.Use) (string, error) // looks up secrets when calls use them; nil refuses such calls
	// Targets are the addresses that flows may connect to, whatever authors declare. Nil allows
	// all.
	Targets *outbound.Targets

	// Memory bounds what runs and replies of services take. Nil is no bound.
	Memory *budget.Memory

	// Retention is how long ended runs and the ids of events are kept. 0 keeps them forever. A pipeline may have another retention
	// for its runs.
	Retention time.Duration

	// Record is the percentage of runs that keep what a replay by other definitions needs, such as
	// the replies of services. See [checkpoint.RunRecording].
	Record float64

	// Shadow gets runs that have ended and are in the share of a version in the shadow. It must not
	// block. Nil replays none.
	Shadow func(t *canary.State, pipeline, run string)

	// AuditRetention is how long audit records are kept. 0 keeps them forever.
	AuditRetention time.Duration

	// Archive says where ended runs go before they leave the store. The zero value is no archive.
	Archive records.ArchiveOptions

	// Origin says in words where an event came from, if an add-on has submitted it. May be nil.
	Origin func(ctx context.Context, e checkpoint.EventView) string

	// Erasers remove what add-ons have stored of a key that is erased.
	Erasers []store.EraseFunc

	// Overrule makes Bundle the current definition of all nodes at the start. Without it, the node
	// uses the store's current definition if the store already knows Bundle, because Bundle is then
	// an old one.
	Overrule bool

	// Unread is why the node's own files cannot run, if Bundle is the store's current definition instead. Nil if it is not.
	Unread error

	// ServiceURLs are the URLs that Bundle was loaded with. The engine needs them to load the older
	// definitions of runs that have not ended.
	ServiceURLs map[string]string

	// Compare finds differences of definitions in what add-ons have added to the language.
	Compare []diff.Comparer

	// Only [Virtual] sets the following.
	now   func() time.Time         // nil for the machine's clock
	runID func(model.Event) string // makes the id of a new run
	call  func(ctx context.Context, t *core.Attempt, h Handler, c *Call) (model.Result, error)
}

// DefaultOptions returns the default options.
func DefaultOptions() Options {
	return Options{
		Log: slog.New(slog.DiscardHandler), MaxInFlight: 256,
		Lease: 4 * time.Second, Drain: 20 * time.Second, Retention: 7 * 24 * time.Hour, AuditRetention: 400 * 24 * time.Hour,
	}
}

// An Engine accepts events and runs them. Most of its methods are those of its parts. All methods
// are safe for concurrent use.
type Engine struct {
	*credentials.Access
	*definitions.Follower
	*definitions.History
	*explain.Explainer
	*intake.Acceptor
	*intake.Reruns
	*records.Audits
	*records.Runs
	*steering.Steering
	*watch.Answers

	o        Options
	library  definitions.Library
	handlers map[string]HandlerType // by the name of the type
	clock    clock.Clock
	memory   Memory // of handlers
	tokens   outbound.Tokens

	runStatus func(ctx context.Context, run string) (model.Status, error) // RunStatus, made once for all calls

	running   atomic.Bool
	driver    *node.Driver
	retention records.Retention
	archiver  records.Archiver
}

// New makes an engine. Before Run, it accepts events but does not run them.
func New(o Options) (*Engine, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		o: o,
		library: definitions.Library{
			Store: o.Store.Bundles, Language: o.Bundle.Language, Types: Types(o.Types), Compare: o.Compare, Services: o.ServiceURLs,
			MaxConns: o.MaxInFlight,
			Targets:  o.Targets, Log: o.Log, RunID: o.runID,
		},
		handlers: map[string]HandlerType{},
		clock:    clock.Clock{Known: make(chan struct{}), Source: o.now},
	}
	if o.Secrets != nil {
		e.library.Certificates = outbound.Certificates{Log: o.Log, Read: func(s *tree.Service, file string) (string, error) {
			return o.Secrets(secrets.Use{Name: file, To: s.ID, Owner: s.Owner})
		}}
	}
	e.tokens.Targets, e.tokens.Log = o.Targets, o.Log
	e.tokens.Asked = func(service, outcome string) { o.Metrics.Tokens.WithLabelValues(service, outcome).Inc() }
	settings := &settings.Settings{Kept: o.Store.Settings, Keys: o.Store.Tokens, Library: &e.library, Log: o.Log}
	e.Access = &credentials.Access{
		Kept: o.Store.Tokens, Documents: o.Store.Documents, Known: settings, Now: e.clock.Now, Log: o.Log, CheckPath: e.checkPath,
		Sharers:   func() int { return int(e.Guard.Nodes.Load()) },
		Overspent: func(token string, items int) { o.Metrics.OverQuota.WithLabelValues(token).Add(float64(items)) },
	}
	e.Audits, e.Runs = &records.Audits{Store: o.Store}, &records.Runs{
		Store: o.Store, Library: &e.library, Memory: o.Memory, Now: e.clock.Now, Erasers: o.Erasers, Origin: o.Origin,
	}
	e.History = &definitions.History{Library: &e.library, Kept: o.Store}
	e.Follower = &definitions.Follower{
		Library: &e.library, Bundles: o.Store.Bundles, Log: o.Log, Node: o.Name, Overrule: o.Overrule, Accepted: e.Runs,
	}
	e.Steering = &steering.Steering{
		Store: o.Store, Library: &e.library, Settings: settings, Degrader: fallback.New(o.Store.Degradation),
		Guard: &guard.Guard{Slots: o.MaxInFlight},
		Stats: &stats.Stats{Metrics: o.Metrics}, Metrics: o.Metrics, Clock: &e.clock, Log: o.Log, Notify: o.Notify,
	}
	turns := &intake.Turns{Slots: o.MaxInFlight}
	e.Steering.Behind, e.Steering.Overused = turns.Behind, e.OverQuota
	if o.Unread != nil {
		e.Follower.NoteUnread(o.Unread)
	}
	e.Follower.Trials, e.Follower.Tell = e.Degrader, e.Steering.Tell
	e.Degrader.Tried = e.Follower.Heed
	health := &writes.Health{}
	e.Answers = &watch.Answers{Runs: o.Store.Runs, Watch: watch.Watch{
		News: o.Store.Runs.Newer, Log: o.Log, Drives: func(run string) bool { return e.driver.Drives(run) },
	}}
	e.driver = node.NewDriver(node.Parts{
		Steering: e.Steering, Follower: e.Follower, Runs: e.Runs, Watch: &e.Answers.Watch, Writes: health, Tracer: o.Tracer,
		Name: o.Name, Turns: turns, Memory: o.Memory, MaxInFlight: o.MaxInFlight, Lease: o.Lease, Drain: o.Drain, Record: o.Record, Shadow: o.Shadow, Call: e.call,
	})
	e.Runs.Node, e.Runs.IsOff, e.Runs.ForgetValues = e.driver, e.OffAt, e.Degrader.ForgetValues
	e.Acceptor = intake.NewAcceptor(intake.Parts{
		Inbox: o.Store.Inbox, Runs: o.Store.Runs, Library: &e.library, Room: e.driver, Turns: turns, Now: e.clock.Now, Lost: e.driver.Lost, Writes: health,
		Metrics: o.Metrics, Stats: e.Stats,
	})
	e.Steering.Inbox, e.Steering.Ends, e.Steering.Retention = e.Acceptor, e.Runs, o.Retention
	isBehind := func() bool { return e.Follower.Refused() != nil }
	e.retention = records.Retention{
		Runs: e.Runs, Log: o.Log, Failed: o.Metrics.Failed, Keep: o.Retention, KeepAudit: o.AuditRetention, IsBehind: isBehind,
		Archiver: &e.archiver,
	}
	e.archiver = records.Archiver{
		ArchiveOptions: o.Archive, Runs: e.Runs, Log: o.Log, Name: o.Name, Keep: e.retention.Terms, IsBehind: isBehind,
		Archived: o.Metrics.CountArchived, Failing: o.Metrics.ShowArchive, Oldest: o.Metrics.ShowOldest,
	}
	e.runStatus = e.RunStatus
	e.Reruns = &intake.Reruns{Runs: e.Runs, Acceptor: e.Acceptor}
	e.Explainer = explain.New(o.Store, &e.library, settings, e.Effects)
	for _, t := range o.Types {
		e.handlers[t.Name] = t
	}
	d, err := e.library.Add(o.Bundle)
	if err != nil {
		return nil, err
	}
	e.library.Swap(d)
	e.o.Bundle, o.Bundle = nil, nil // the library has it, as long as it is needed; functions above keep o
	o.Metrics.Show(e.Handlers, e.Services, e.Parked, turns.Behind, e.library.Present, e.Targets)
	return e, nil
}

// CheckCertificates returns what is wrong with the files that services with tls need.
func (e *Engine) CheckCertificates() error { return e.library.Certificates.Err() }

// lastSave is how long a stopping node tries to save what its last runs have used.
const lastSave = 2 * time.Second

// errRunning is the error of a second call of Run.
var errRunning = errors.New("engine runs already")

// Run works until ctx ends. Then it drains: it claims no more runs, waits up to Options.Drain for
// calls in flight, releases the remaining runs and returns.
func (e *Engine) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.running.Store(false)
	defer e.library.CloseIdleConnections()
	defer e.tokens.Close()
	var loops sync.WaitGroup
	defer loops.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // the driver may end first
	firer := e.Steering.Firer(e.Bundle, e.Reloaded)
	loops.Go(func() { firer.Run(ctx) })
	loops.Go(func() { e.Measure(ctx) })
	loops.Go(func() { e.Follow(ctx) })
	loops.Go(func() { e.retention.Run(ctx) })
	loops.Go(func() { e.archiver.Run(ctx) })
	loops.Go(func() { e.Answers.Watch.Run(ctx) })
	loops.Go(func() { e.KeepUsage(ctx) })
	err := e.driver.Run(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSave)
	defer cancel()
	e.SaveUsage(last)
	return err
}

// complete checks the options and fills in defaults.
func (o Options) complete() (Options, error) {
	if o.Store.Ledger == nil || o.Bundle == nil {
		return o, errors.New("engine: want a store and a bundle, have Options without")
	}
	d := DefaultOptions()
	if o.Log == nil {
		o.Log = d.Log
	}
	if o.Metrics == nil {
		o.Metrics = stats.NewMetrics(prometheus.NewRegistry()) // a registry that nobody reads
	}
	if o.runID == nil {
		o.runID = func(model.Event) string { return intake.NewID() }
	}
	if o.call == nil {
		o.call = func(ctx context.Context, _ *core.Attempt, h Handler, c *Call) (model.Result, error) {
			return h.Handle(ctx, c)
		}
	}
	if o.Shadow == nil {
		o.Shadow = func(*canary.State, string, string) {}
	}
	o.MaxInFlight = cmp.Or(o.MaxInFlight, d.MaxInFlight)
	o.Lease = cmp.Or(o.Lease, d.Lease)
	o.Drain = cmp.Or(o.Drain, d.Drain)
	if o.MaxInFlight < 1 || o.Lease < 100*time.Millisecond || min(o.Drain, o.Retention, o.AuditRetention) < 0 {
		return o, fmt.Errorf("engine: want 1 run in flight or more, a lease of 100ms or more, a drain time "+
			"and retentions of 0s or more, have %d, %s, %s, %s, %s", o.MaxInFlight, o.Lease, o.Drain, o.Retention, o.AuditRetention)
	}
	return o, nil
}

// Bundle returns the definition that serves new events.
func (e *Engine) Bundle() *tree.Bundle { return e.library.Present().Bundle }

// Reloaded returns a channel that is closed when the node switches to another definition. Call it
// before Bundle, so that no change is missed.
func (e *Engine) Reloaded() <-chan struct{} { return e.library.Reloaded() }

// Now returns the time by the store's clock, which all nodes share.
func (e *Engine) Now() time.Time { return e.clock.Now() }

// NodeNumber returns the number of this node among those of the store, or 0 before it has one. A node that was silent too long
// gets another one.
func (e *Engine) NodeNumber() int64 { return e.driver.Number() }

// CloseIdleConnections closes the idle connections to services.
func (e *Engine) CloseIdleConnections() { e.library.CloseIdleConnections() }

// Plans returns the plans of all pipelines of the current definition, in order.
func (e *Engine) Plans() []*planner.Plan { return slices.Clone(e.library.Present().Plans) }

// Healthy returns why the node cannot work now, or nil.
//
// The error is [store.ErrLost] when the store has lost data that it acknowledged. Nothing may write
// to the store then.
func (e *Engine) Healthy(context.Context) error { return e.driver.Healthy() }

// checkPath returns an error if the current definition has no such path.
func (e *Engine) checkPath(path string) error {
	if d := e.library.Present(); len(d.Under(path)) == 0 {
		return d.UnknownPath(path)
	}
	return nil
}

// Degraded returns what does not work although the node works, or nil.
func (e *Engine) Degraded() error {
	if err := e.Refused(); err != nil {
		return fmt.Errorf("new events run by an older definition, because the current one cannot run here: %w", err)
	}
	if err := e.Unread(); err != nil {
		return fmt.Errorf("this node serves the pipelines of the store, because its own have errors; mend them, then procaas release reload: %w", err)
	}
	if s := e.o.Store.Scattered; s != nil {
		if err := s.Unreachable(); err != nil {
			return err
		}
	}
	if err := e.Damaged(); err != nil {
		return err
	}
	if err := e.archiver.Err(); err != nil {
		return err
	}
	return e.Sheds()
}

// Damaged returns an error if the store has data that can be neither read nor set aside, or nil.
func (e *Engine) Damaged() error { return e.driver.Damaged() }
