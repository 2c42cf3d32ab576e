// Package api serves the engine over HTTP: events in, runs and keys out, live
// settings, health, metrics, the description of itself and a page for people.
//
// Every route is one [operation]: what serves it and what describes it stand
// together, so that the description cannot drift from the router.
package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api/ui"
)

// DefaultMaxBody bounds the body of a request when [Options] sets no bound.
const DefaultMaxBody = 1 << 20

// Options says what the API serves. Only Engine is needed.
type Options struct {
	Engine   Engine
	Log      *slog.Logger        // nothing is logged when nil
	Registry prometheus.Gatherer // what /metrics shows; nothing when nil
	Token    string              // of an admin, as [engine.HashToken] reads it; may be empty
	Open     []string            // groups of calls that never need a token; see [OpenGroups]

	// Local says that the server is reached from this machine only. Callers without a
	// token must then call it localhost, by a loopback address or by one of Hosts: a page
	// of another site, whose name was made to lead here, calls it by that name.
	Local bool
	Hosts []string

	MaxBody int64  // of a request, in bytes; [DefaultMaxBody] when 0
	Version string // of the program, for people

	// Shards answers where keys live; nobody does when it is nil.
	Shards engine.ShardMaps

	// Inbox tells of the databases of the inbox; nil when there is one.
	Inbox engine.InboxCells

	// Play runs what the playground of the console tries. It only checks when nil.
	Play ui.Player

	// Tasks is the queue of tasks; its calls are refused when it is nil.
	Tasks engine.TaskStore

	// StrictTasks refuses tasks of types that no pipeline declares and nobody asks for;
	// otherwise they are taken in with a warning.
	StrictTasks bool

	// Closing is closed when the server is about to end: who waits for tasks waits
	// no more.
	Closing <-chan struct{}

	// Reload reads the node's pipelines again, activates them on all nodes and
	// tells what that changes. The error is an [*engine.DefinitionError] when they
	// are refused. The call is refused when it is nil.
	Reload func(ctx context.Context, drop bool, by engine.Actor) (engine.Diff, error)
}

// An Engine is what the API needs of [engine.Engine].
type Engine interface {
	Intake
	Runs
	Settings
	Controls
	Fallbacks
	Transfers
	Status
	Access
	Clusters
	Levers
}

// An Intake accepts events.
type Intake interface {
	// Submit gives a receipt or an error for each event, in their order. Its own error is
	// for all of them: then it may be unknown whether they are stored.
	Submit(ctx context.Context, events []engine.Submission) ([]engine.Submitted, error)

	// Overload tells why even one event more would have to wait for too long; nil when it
	// would not. It is asked before a body is read, so it takes nothing from the store.
	Overload() *engine.OverloadError
}

// Runs reads runs and lets operators steer them. Where one run is named, the error is
// [engine.ErrNotFound] when there is none. What is done to many is done to a page of
// them, the first accepted first, and gives the cursor of the rest.
type Runs interface {
	RunByID(ctx context.Context, id string) (engine.RunView, error)
	Explain(ctx context.Context, run, path string) (engine.Explanation, error)
	Story(ctx context.Context, run string) (engine.Story, error)
	List(ctx context.Context, f engine.RunFilter) ([]engine.RunView, string, error)
	Entity(ctx context.Context, flow, key string) (engine.EntityView, error)
	Retry(ctx context.Context, id string, by engine.Actor) (engine.RunView, error)
	Cancel(ctx context.Context, id string, by engine.Actor) (engine.RunView, error)
	Abandon(ctx context.Context, id string, by engine.Actor) (engine.RunView, error)
	Preview(ctx context.Context, f engine.RunFilter) (engine.RunsPreview, error)
	RetryAll(ctx context.Context, f engine.RunFilter, by engine.Actor) (engine.RunsDone, error)

	// MakeUpAll lets runs that left a handler out do it after all.
	MakeUpAll(ctx context.Context, f engine.RunFilter, by engine.Actor) (engine.RunsDone, error)
	Fit(ctx context.Context, id string) (engine.RunFit, error)
	Move(ctx context.Context, id string, by engine.Actor) (engine.RunView, error)
	MoveAll(ctx context.Context, f engine.RunFilter, preview bool, by engine.Actor) (engine.RunsMoved, error)
	CancelAll(ctx context.Context, f engine.RunFilter, by engine.Actor) (engine.RunsDone, error)
	AbandonAll(ctx context.Context, f engine.RunFilter, by engine.Actor) (engine.RunsDone, error)
}

// Settings reads and changes what holds at run time.
type Settings interface {
	Configs(ctx context.Context) ([]engine.ConfigView, error)

	// SetConfig replaces the value when the setting has the revision, 0 being that of one
	// that was never changed, and -1 any.
	SetConfig(ctx context.Context, name string, value any, ifRevision int64, by engine.Actor) (engine.ConfigView, error)
	Audit(ctx context.Context, f engine.AuditFilter) ([]engine.AuditView, error)

	// VerifyAudit follows the chains of the audit, and looks for hashes that were kept.
	VerifyAudit(ctx context.Context, kept []string) (engine.AuditReport, error)
}

// Status tells what the engine works with and whether it can work.
type Status interface {
	// Bundle is what new events are served by now. It changes when pipelines are loaded
	// again, so it is asked for anew in each request, and never kept.
	Bundle() *dsl.Bundle
	Plans() []*engine.Plan

	// Try checks files and plans their pipelines, and keeps nothing of it.
	Try(files []diag.File) ([]engine.PlanView, []diag.Diagnostic)

	// Handlers and Services tell what this node has seen of them; others see other things.
	Handlers() []engine.HandlerInfo
	Services() []engine.ServiceInfo

	// Backlog tells what waits on all nodes.
	Backlog() engine.BacklogView

	// Healthy tells why the node cannot work, and must get no requests; Degraded what does
	// not work although it can.
	Healthy(ctx context.Context) error
	Degraded() error

	Nodes(ctx context.Context) ([]engine.NodeView, error)
}

var _ Engine = (*engine.Engine)(nil)

// New makes the handler of all routes. It panics when its own page does not
// parse, which the first test meets, and when [engine.HashToken] refuses
// Options.Token.
func New(o Options) http.Handler {
	h, _ := NewWithConsole(o)
	return h
}

// NewWithConsole makes the handler of all routes, and the console among them, whose
// Run must go on while it is to show numbers over time.
func NewWithConsole(o Options) (http.Handler, *ui.Console) {
	s := newServer(o)
	return s.handler(), s.console
}

type server struct {
	engine    Engine
	tasks     engine.TaskStore // may be nil
	served    servedTypes
	closing   <-chan struct{}
	log       *slog.Logger
	metrics   prometheus.Gatherer
	token     *[sha256.Size]byte // nil for none
	open      []string
	local     bool
	hosts     []string
	maxBody   int64
	bodies    atomic.Int64  // bytes of requests under way
	verifying chan struct{} // has room for one who reads the whole audit
	version   string
	shards    engine.ShardMaps
	warm      atomic.Bool       // a question for a shard was let in: the tokens are in memory
	inbox     engine.InboxCells // nil when the inbox has one database
	reload    func(context.Context, bool, engine.Actor) (engine.Diff, error)
	play      ui.Player

	router  *chi.Mux
	doc     *huma.OpenAPI
	console *ui.Console

	failures failures
	refusals refusals
}

// newDoor makes what it takes to tell who may call.
func newDoor(o Options) *server {
	s := &server{
		engine: o.Engine, log: o.Log, metrics: o.Registry, maxBody: o.MaxBody, version: o.Version, reload: o.Reload, play: o.Play, shards: o.Shards, inbox: o.Inbox,
		open: o.Open, local: o.Local,
		tasks: o.Tasks, served: servedTypes{strict: o.StrictTasks}, closing: o.Closing, verifying: make(chan struct{}, 1),
	}
	for _, h := range o.Hosts {
		s.hosts = append(s.hosts, strings.ToLower(h))
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.metrics == nil {
		s.metrics = prometheus.NewRegistry()
	}
	if s.maxBody <= 0 {
		s.maxBody = DefaultMaxBody
	}
	if o.Token != "" {
		hash, err := engine.HashToken(o.Token)
		if err != nil {
			panic(fmt.Errorf("the token of an admin: %w", err))
		}
		s.token = &hash
	}
	return s
}

func newServer(o Options) *server {
	s := newDoor(o)
	s.router = chi.NewMux()
	s.doc = newDocument()
	s.router.Use(middleware.GetHead)
	s.router.NotFound(s.serve(s.unknownPath))
	s.router.MethodNotAllowed(s.serve(s.unknownMethod))
	for _, o := range s.operations() {
		s.add(o)
	}
	s.console = s.newConsole()
	s.router.Handle(ui.Root+"*", s.serve(s.serveConsole))
	s.refine()
	return s
}

// operations lists all routes, in the order of the description.
func (s *server) operations() []operation {
	var all []operation
	all = append(all, s.intakeOperations()...)
	all = append(all, s.queueOperations()...)
	all = append(all, s.queueOfficeOperations()...)
	all = append(all, s.runOperations()...)
	all = append(all, s.migrateOperations()...)
	all = append(all, s.clusterOperations()...)
	all = append(all, s.leverOperations()...)
	all = append(all, s.adminOperations()...)
	all = append(all, s.inboxOperations()...)
	all = append(all, s.fallbackOperations()...)
	all = append(all, s.controlOperations()...)
	all = append(all, s.shardOperations()...)
	all = append(all, s.transferOperations()...)
	all = append(all, s.tokenOperations()...)
	return append(all, s.statusOperations()...)
}

// handler wraps the router. Each of the list wraps those before it, so a request meets the
// last one first: the log sees every reply, also those to panics, and a body is counted
// only when nothing else has refused the request.
func (s *server) handler() http.Handler {
	var h http.Handler = s.router
	for _, wrap := range []func(http.Handler) http.Handler{
		s.boundBodies, s.refuseLost, s.withDeadline, s.refuseCrossOrigin, s.refuseChunked, s.quickly, s.withHeaders, s.recovered, s.logged,
	} {
		h = wrap(h)
	}
	return h
}
