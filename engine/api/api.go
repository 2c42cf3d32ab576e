// Package api serves the engine over HTTP: events in, runs and keys out, live
// settings, health, metrics, the description of itself and a page for people.
//
// Each group of calls is a package of its own below this one, with the ports that it needs.
// Every route is one [rest.Operation]: what serves it and what describes it are made of the
// same declarations, so that the description cannot drift from the router.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/api/access"
	"procaas/engine/api/admin"
	"procaas/engine/api/clusters"
	"procaas/engine/api/controls"
	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/queues"
	"procaas/engine/api/rest"
	"procaas/engine/api/runs"
	"procaas/engine/api/shards"
	"procaas/engine/api/transport"
	"procaas/engine/api/ui"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/inbox"
	"procaas/engine/store"
	"procaas/engine/transfers"
)

// DefaultMaxBody bounds the body of a request when [Options] sets no bound.
const DefaultMaxBody = 1 << 20

// Options says what the API serves. Only Engine is needed.
type Options struct {
	Engine   Ports
	Log      *slog.Logger        // nothing is logged when nil
	Registry prometheus.Gatherer // what /metrics shows; nothing when nil
	Token    string              // of an admin, as [engine.HashToken] reads it; may be empty
	Open     []string            // groups of calls that never need a token; see [access.OpenGroups]

	// Local says that the server is reached from this machine only. Callers without a
	// token must then call it localhost, by a loopback address or by one of Hosts: a page
	// of another site, whose name was made to lead here, calls it by that name.
	Local bool
	Hosts []string

	MaxBody int64  // of a request, in bytes; [DefaultMaxBody] when 0
	Version string // of the program, for people
	Dev     bool   // pipelines are worked on here: the console shows its design language

	// Shards answers where keys live; nobody does when it is nil.
	Shards transfers.ShardMaps

	// Inbox tells of the databases of the inbox; nil when there is one.
	Inbox inbox.Cells

	// Documents keep the evidence of incidents; the process forgets it when they are nil.
	Documents store.Documents

	// TraceURL is the address of a trace, with {trace_id} in it; empty for none.
	TraceURL string

	// Play runs what the playground of the console tries. It only checks when nil.
	Play ui.Player

	// Tasks is the queue of tasks; its calls are refused when it is nil.
	Tasks *store.TaskStore

	// StrictTasks refuses tasks of types that no pipeline declares and nobody asks for;
	// otherwise they are taken in with a warning.
	StrictTasks bool

	// Closing is closed when the server is about to end: who waits for tasks waits
	// no more.
	Closing <-chan struct{}

	// Reload reads the node's pipelines again, or a version that the store keeps, activates it on all
	// nodes and tells what that changes. The error is a [*definitions.LoadError] when it
	// is refused. The call is refused when it is nil.
	Reload func(ctx context.Context, how definitions.Change, by store.Actor) (diff.Diff, error)
}

// Ports is what the API needs of the engine, by what each group of calls does with it.
type Ports struct {
	Intake    intake.Intake
	Runs      runs.Reader
	Steer     runs.Steerer
	Mover     runs.Mover
	Controls  controls.Controls
	Settings  controls.Settings
	Clusters  clusters.Clusters
	Transfers shards.Transfers
	Queues    queues.Engine
	Status    admin.Status
	Tokens    admin.Tokens
	Versions  admin.Versions
	Access    access.Access
	Health    Health
	Console   ui.Engine
}

// Of takes all ports from an engine.
func Of(e *engine.Engine) Ports {
	return Ports{
		Intake: e, Runs: e, Steer: e, Mover: e, Controls: e, Settings: e, Clusters: e, Transfers: e, Queues: e,
		Status: e, Tokens: e, Versions: e, Access: e, Health: e,
		Console: ui.Engine{Definition: e, Node: e, Runs: e, Steering: e, Switches: e, Changes: e, History: e},
	}
}

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

// A server holds the routes together.
type server struct {
	Options
	access  *access.Checker
	shards  *shards.Group
	streams *rest.Streams
	router  *chi.Mux
	doc     *rest.Document
	console *ui.Console
}

func newServer(o Options) *server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	s := &server{Options: o, router: chi.NewMux(), doc: newDocument()}
	s.access = access.New(access.Options{Access: o.Engine.Access, Log: o.Log, Token: o.Token, Open: o.Open, Local: o.Local, Hosts: o.Hosts})
	s.console = s.newConsole()
	s.streams = &rest.Streams{Ended: s.console.Ended(), Closing: o.Closing, MayGoOn: s.access.MayGoOn}
	s.shards = &shards.Group{Maps: o.Shards, Transfers: o.Engine.Transfers, Streams: s.streams}
	s.router.Use(middleware.GetHead)
	s.router.NotFound(s.access.Serve(s.unknownPath))
	s.router.MethodNotAllowed(s.access.Serve(s.unknownMethod))
	for _, o := range s.operations() {
		s.add(&o)
	}
	s.router.Handle(ui.Root+"*", s.access.Serve(s.serveConsole))
	s.router.Handle(strings.TrimSuffix(ui.Root, "/"), http.RedirectHandler(ui.Overview, http.StatusFound))
	s.doc.Refine()
	describeFields(s.doc)
	return s
}

// operations lists all routes.
func (s *server) operations() []rest.Operation {
	p := &s.Engine
	office := &admin.Group{Status: p.Status, Tokens: p.Tokens, Versions: p.Versions, Inbox: s.Inbox, Configured: s.Token != "", Reload: s.Reload}
	events := &intake.Group{Intake: p.Intake, Runs: p.Runs, Streams: s.streams}
	var all []rest.Operation
	for _, group := range []interface{ Operations() []rest.Operation }{
		events,
		&queues.Group{Engine: p.Queues, Tasks: s.Tasks, Events: events, Log: s.Log, Closing: s.Closing, Strict: s.StrictTasks},
		&runs.Group{Runs: p.Runs, Steer: p.Steer, Mover: p.Mover, Streams: s.streams, Version: office.Version},
		&clusters.Group{Clusters: p.Clusters, Streams: s.streams},
		office,
		&controls.Group{Controls: p.Controls, Settings: p.Settings},
		s.shards,
	} {
		all = append(all, group.Operations()...)
	}
	return append(all, s.statusOperations()...)
}

// add serves and describes an operation.
func (s *server) add(o *rest.Operation) {
	n, known := access.Needs[o.ID]
	if !known {
		panic("api: operation " + o.ID + " has no place in the table of needs")
	}
	s.doc.Add(o, string(n.Role))
	s.router.Method(o.Method, o.Path, s.access.Serve(func(w http.ResponseWriter, r *http.Request) error {
		r, err := s.access.Admit(r, n)
		if err != nil {
			return err
		}
		if err := o.CheckQuery(r); err != nil {
			return err
		}
		if rest.Lasts(r) && n.Role != "" {
			var release func()
			r, release = s.access.WhileAdmitted(r, n)
			defer release()
		}
		return o.Serve(&rest.Call{W: w, R: r, MaxBody: s.MaxBody})
	}))
}

// handler puts the middleware before the router.
func (s *server) handler() http.Handler {
	f := &transport.Middleware{
		Access: s.access, Log: s.Log, Healthy: s.healthy, MaxBody: s.MaxBody,
		Quickly: func(next http.Handler) http.Handler {
			return s.shards.Quickly(next, s.access.May, s.access.Refuse)
		},
	}
	return f.Wrap(s.router)
}

// healthy returns why the node cannot work.
func (s *server) healthy(ctx context.Context) error { return s.Engine.Health.Healthy(ctx) }

// unknownPath is served where no route is.
func (s *server) unknownPath(_ http.ResponseWriter, r *http.Request) error {
	return problem.New(problem.UnknownPath, "there is nothing at %s; /openapi.json lists all calls", r.URL.Path)
}

// unknownMethod is served where there are routes, but none of that method. The router knows
// them by the path as it was sent, in which keys may hold escaped slashes.
func (s *server) unknownMethod(_ http.ResponseWriter, r *http.Request) error {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !s.router.Match(chi.NewRouteContext(), m, path) {
			continue
		}
		allowed = append(allowed, m)
		if m == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	if len(allowed) == 0 {
		return s.unknownPath(nil, r)
	}
	list := strings.Join(allowed, ", ")
	return problem.New(problem.UnknownMethod, "%s takes %s, not %s", r.URL.Path, list, r.Method).With("Allow", list)
}
