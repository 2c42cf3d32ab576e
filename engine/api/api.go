// Package api serves the engine over HTTP: events, runs, keys, live settings, health, metrics, its
// own description, and the console.
//
// Each group of calls has its own package below this one, with the ports that it needs. Every route
// is one [rest.Operation]. The same declarations serve and describe it, so the description always
// matches the router.
package api

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/api/access"
	"procaas/engine/api/admin"
	"procaas/engine/api/controls"
	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/runs"
	"procaas/engine/api/transport"
	"procaas/engine/api/triggers"
	"procaas/engine/api/ui"
	"procaas/engine/budget"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/store"
)

// DefaultMaxBody is the default bound of a request's body in bytes.
const DefaultMaxBody = 1 << 20

// Options configures the API. Only Engine is required.
type Options struct {
	Engine   Ports
	Log      *slog.Logger        // nil logs nothing
	Registry prometheus.Gatherer // the metrics of /metrics; nil for none
	Token    string              // of an admin, in the form of [credentials.HashToken]; may be empty
	Others   access.Identifier   // see [access.Options]; may be nil
	Open     []string            // groups of calls that never need a token; see [rest.OpenGroups]

	// Local says that only this machine reaches the server. Callers without a token must then call
	// it localhost, a loopback address or one of Hosts. A page of another site whose name resolves
	// to this machine uses that site's name.
	Local bool
	Hosts []string

	MaxBody int64          // of a request, in bytes; 0 means [DefaultMaxBody]
	Memory  *budget.Memory // of the node; nil for no bound
	Version string         // of the program, for people
	Profile bool           // admins may profile the process
	Dev     bool           // pipelines are developed here: the console shows its design language

	// Documents stores the evidence of incidents. Nil keeps it in memory.
	Documents store.Documents

	// TraceURL is the address of a trace, with {trace_id} in it. Empty for none.
	TraceURL string

	// Play checks and runs what is typed in the console's playground. Nil checks it in this process, and runs nothing.
	Play ui.Player

	// Groups are the calls of add-ons, and Pages are their pages of the console.
	Groups []Group
	Pages  []ui.Page

	// Files has files of the repository that the documentation in the console links to. May be nil.
	Files fs.FS

	// Closing is closed when the server is about to end. Then callers no longer wait.
	Closing <-chan struct{}

	// Reload reads the node's pipelines again, or a stored version, activates it on all nodes and
	// returns the differences. The error is a [*definitions.LoadError] if it is refused. Nil
	// refuses the call.
	Reload func(ctx context.Context, how definitions.Change, by store.Actor) (diff.Diff, error)
}

// Ports are the ports of the engine for each group of calls.
type Ports struct {
	Intake   intake.Intake
	Runs     runs.Reader
	Steer    runs.Steerer
	Mover    runs.Mover
	Eraser   runs.Eraser
	Controls controls.Controls
	Settings controls.Settings
	Triggers triggers.Triggers
	Status   admin.Status
	Tokens   admin.Tokens
	Versions admin.Versions
	Access   access.Access
	Health   Health
	Console  ui.Engine
}

// Of returns the ports of an engine.
func Of(e *engine.Engine) Ports {
	return Ports{
		Intake: e, Runs: e, Steer: e, Mover: e, Eraser: e, Controls: e, Settings: e, Triggers: e,
		Status: e, Tokens: e, Versions: e, Access: e, Health: e,
		Console: ui.Engine{Definition: e, Node: e, Runs: e, Steering: e, Switches: e, Firing: e, Changes: e, History: e},
	}
}

// A Group is a group of calls that an add-on adds to the API.
type Group struct {
	// Tag and About describe the group in the description of the API. They are empty if its calls have a tag of the core.
	Tag, About string

	// Before is the tag that the group stands before in the description, if another add-on has it. Empty is the end
	// of the add-ons.
	Before string

	// Operations lists the calls. It is called once.
	Operations func(Server) []rest.Operation
}

// A Server is what a group of calls uses of the API that it is a part of.
type Server struct {
	Events  *intake.Group // accepts events
	Streams *rest.Streams
	Log     *slog.Logger
	Closing <-chan struct{} // see [Options.Closing]

	// SignIn opens a session of the console for an identity.
	SignIn func(w http.ResponseWriter, r *http.Request, who credentials.Identity) error
}

// New makes the handler of all routes. It panics if its own page does not parse, or if
// [credentials.HashToken] refuses Options.Token.
func New(o Options) http.Handler {
	h, _ := NewWithConsole(o)
	return h
}

// NewWithConsole makes the handler of all routes, and the console. The console's Run must be
// running to show numbers over time.
func NewWithConsole(o Options) (http.Handler, *ui.Console) {
	s := newServer(o)
	return s.handler(Whole), s.console
}

// NewInParts is [NewWithConsole] for several addresses of one server: the function makes the handler of each.
func NewInParts(o Options) (func(Part) http.Handler, *ui.Console) {
	s := newServer(o)
	return s.handler, s.console
}

// A server combines the routes.
type server struct {
	Options
	access  *access.Checker
	streams *rest.Streams
	router  *chi.Mux
	doc     *rest.Document
	console *ui.Console
	quick   []*rest.Operation          // those with Quick
	routes  map[string]*rest.Operation // by method and pattern
	fixed   map[endpoint]http.Handler  // those without parameters in their path
	tabs    *tabs                      // of the console

	described func() *description // encodes the description when it is first asked for
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
	s := &server{Options: o, router: chi.NewMux(), routes: map[string]*rest.Operation{}, fixed: map[endpoint]http.Handler{}, doc: newDocument(o.Groups)}
	s.access = access.New(access.Options{Access: o.Engine.Access, Others: o.Others, Log: o.Log, Token: o.Token, Open: o.Open, Local: o.Local, Hosts: o.Hosts})
	s.console = s.newConsole()
	s.tabs = newTabs(s.console, o.Memory)
	s.streams = &rest.Streams{Ended: s.console.Ended(), Closing: o.Closing, MayGoOn: s.access.MayGoOn}
	s.router.Use(middleware.GetHead)
	s.router.NotFound(s.access.Serve(s.unknownPath))
	s.router.MethodNotAllowed(s.access.Serve(s.unknownMethod))
	for _, o := range s.operations() {
		s.add(&o)
	}
	s.router.Handle(ui.Root+"*", transport.Within(s.Memory, (&rest.Operation{}).Time, s.access.Serve(s.serveConsole)))
	s.router.Handle(strings.TrimSuffix(ui.Root, "/"), http.RedirectHandler(ui.Overview, http.StatusFound))
	if o.Profile {
		s.addProfiles()
	}
	s.doc.Refine()
	s.doc.Components.Schemas.Map()["CloudEvent"] = intake.CloudEvent()
	s.described = sync.OnceValue(s.describe)
	return s
}

// operations lists all routes.
func (s *server) operations() []rest.Operation {
	p := &s.Engine
	office := &admin.Group{
		Status: p.Status, Tokens: p.Tokens, Versions: p.Versions, Configured: s.Token != "",
		Reload: s.Reload,
	}
	events := &intake.Group{Intake: p.Intake, Runs: p.Runs, Streams: s.streams}
	var all []rest.Operation
	for _, group := range []interface{ Operations() []rest.Operation }{
		events,
		&runs.Group{Runs: p.Runs, Steer: p.Steer, Mover: p.Mover, Eraser: p.Eraser, Streams: s.streams, Version: office.Version},
		office,
		&controls.Group{Controls: p.Controls, Settings: p.Settings},
		&triggers.Group{Triggers: p.Triggers},
	} {
		all = append(all, group.Operations()...)
	}
	for _, g := range s.Groups {
		all = append(all, g.Operations(Server{Events: events, Streams: s.streams, Log: s.Log, Closing: s.Closing, SignIn: s.access.SignInAs})...)
	}
	return append(all, s.statusOperations()...)
}

// add serves and describes an operation.
func (s *server) add(o *rest.Operation) {
	if o.Need == (rest.Need{}) {
		panic("api: operation " + o.ID + " does not say what it needs of its caller")
	}
	if o.Quick != nil {
		s.quick = append(s.quick, o)
	}
	s.doc.Add(o)
	s.routes[o.Method+" "+o.Path] = o
	h := transport.Within(s.Memory, o.Time, s.access.Serve(func(w http.ResponseWriter, r *http.Request) error {
		r, err := s.access.Admit(r, o.Need)
		if err != nil {
			return err
		}
		s.access.NoteUse(r, o.ID)
		if err := o.CheckQuery(r); err != nil {
			return err
		}
		if o.Time(r) == 0 && !o.Need.Anybody {
			var release func()
			r, release = s.access.WhileAdmitted(r, o.Need)
			defer release()
		}
		return o.Serve(&rest.Call{W: w, R: r, MaxBody: max(o.MaxBody, s.MaxBody), Need: o.Need})
	}))
	s.router.Method(o.Method, o.Path, h)
	if !strings.ContainsAny(o.Path, "{*") {
		s.fixed[endpoint{o.Method, o.Path}] = h
	}
}

// An endpoint is a method and a path.
type endpoint struct{ method, path string }

// route serves a request. One whose path has no parameters needs no search, and no context of the router.
func (s *server) route(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawPath == "" {
		if h := s.fixed[endpoint{r.Method, r.URL.Path}]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
	}
	s.router.ServeHTTP(w, r)
}

// handler puts the middleware in front of the routes of a part.
func (s *server) handler(p Part) http.Handler {
	f := &transport.Middleware{Access: s.access, Log: s.Log, Healthy: s.healthy, Quickly: s.quickly}
	if p != Whole { // in front of what answers without the router
		f.Quickly = func(next http.Handler) http.Handler { return s.only(p, s.quickly(next)) }
	}
	return f.Wrap(http.HandlerFunc(s.route))
}

// quickly lets operations answer without the router.
func (s *server) quickly(next http.Handler) http.Handler {
	for _, o := range s.quick {
		next = o.Quick(next, func(w http.ResponseWriter, r *http.Request) bool {
			err := s.access.May(r, o.Need)
			if err != nil {
				s.access.Refuse(w, r, err)
			}
			return err == nil
		})
	}
	return next
}

// healthy returns why the node cannot work.
func (s *server) healthy(ctx context.Context) error { return s.Engine.Health.Healthy(ctx) }

// unknownPath is served where no route is.
func (s *server) unknownPath(_ http.ResponseWriter, r *http.Request) error {
	return problem.New(problem.UnknownPath, "there is nothing at %s; /openapi.json lists all calls", r.URL.Path)
}

// unknownMethod is served if a path has routes, but none for the method. The router matches the
// path as it was sent, because keys may contain escaped slashes.
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
