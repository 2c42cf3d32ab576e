package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	apiproblem "procaas/engine/api/problem"
	"procaas/engine/api/ui/seen"
	"procaas/engine/api/ui/words"
	"procaas/engine/clock"
	"procaas/engine/credentials"
	"procaas/engine/explain"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// Options says what the console shows. Version may be empty, and what is said
// to be nil may be.
type Options struct {
	Engine  Engine
	Log     *slog.Logger
	Version string
	Dev     bool // pipelines are worked on here: the page that shows the design language is served

	// Play checks and runs what is typed in the playground. If it is nil, this process checks it, and runs nothing.
	Play Player

	// Documents keep the evidence of incidents; this process forgets it when they are nil.
	Documents store.Documents

	// TraceURL is the address of a trace, with {trace_id} in it; empty for none.
	TraceURL string

	// Pages are those of add-ons.
	Pages []Page

	// Files has files of the repository that the documentation links to. May be nil.
	Files fs.FS

	// Caller returns the grant that a request was let in with.
	Caller func(*http.Request) credentials.Grant

	// SignIn checks a token and gives what keeps the caller signed in; the error is
	// for people.
	SignIn func(w http.ResponseWriter, r *http.Request, token string) error

	// Entrances returns where else people sign in, to see a page then. Nil for nowhere.
	Entrances func(next string) []credentials.Entrance

	// SignOut ends the session of the caller.
	SignOut func(w http.ResponseWriter, r *http.Request) error

	// NoteRefusal writes down that the caller of a request may not do what a form asks for.
	NoteRefusal func(r *http.Request, text string)

	// Submit hands in an event in the plain form for the caller of a request. It returns what POST /v1/events replies.
	Submit func(r *http.Request, event []byte) (status int, reply []byte)
}

// An Engine is what the console needs of [engine.Engine]: what each group of pages needs
// is beside them. All of it is asked for anew with each request, so that pages follow
// a definition that is loaded meanwhile.
type Engine struct {
	Definition // pipelines, the playground, and the foot of each page
	Node       // the overview, and the head of each page
	Runs       // runs, keys, why
	Steering   // the buttons of runs
	Switches   // handlers, and the buttons that switch them
	Firing     // triggers
	Changes    // the audit, incidents
	History    // versions, and a canary wherever it is told
}

// A Definition is what new events are served by.
type Definition interface {
	Bundle() *tree.Bundle
	Plans() []*planner.Plan
	Try(files []diag.File) ([]planner.PlanView, []diag.Diagnostic)
}

// A Node tells what it has seen, and how it and the others are.
type Node interface {
	Handlers() []stats.HandlerInfo
	Active() []stats.HandlerInfo
	Numbers() stats.Numbers
	Pipelines() []stats.PipelineInfo
	Services() []guard.ServiceInfo
	Durations() []stats.DurationView
	Backlog() stats.BacklogView
	Healthy(ctx context.Context) error
	Degraded() error
	Nodes(ctx context.Context) ([]records.NodeView, error)
	Costs(ctx context.Context, by string, days int, reads func(path string) bool) ([]stats.Cost, error)
}

// A Console serves the pages.
type Console struct {
	o        Options
	mux      *http.ServeMux
	pages    pages
	static   map[string]asset
	history  *seen.History
	evidence *seen.Evidence
	ended    chan struct{} // closed when Run ends: streams end then
	playing  chan struct{} // held by who runs something in the playground
	strange  *atomic.Int64 // bytes of forms of those who have not signed in
}

// Overview is the address of the first page.
const Overview = "/"

// Root is where all pages but the overview are.
const Root = words.Root

// SignInPage is where people sign in, and SignOutPage where they sign out.
const (
	SignInPage  = Root + "sign-in"
	SignOutPage = Root + "sign-out"
)

// SubmitPage is where people submit events.
const SubmitPage = Root + "submit"

// StyleGuide shows what pages are made of.
const StyleGuide = Root + "styleguide"

// New makes a console. It panics when a page does not parse, which the first test
// meets.
func New(o Options) *Console {
	c := &Console{
		o: o, pages: newPages(o.Pages), static: newAssets(), history: seen.NewHistory(),
		evidence: seen.NewEvidence(o.Documents), ended: make(chan struct{}), playing: make(chan struct{}, 1), strange: new(atomic.Int64),
	}
	c.mux = c.routes()
	return c
}

// routes returns the handlers of all pages.
func (c *Console) routes() *http.ServeMux {
	all := map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}":                                c.overview,
		"GET " + Root + "pipelines/{id}":          c.pipeline,
		"GET " + Root + "handlers/{path...}":      c.handler,
		"GET " + Root + "runs":                    runPages{c}.runs,
		"GET " + Root + "runs/{id}":               runPages{c}.run,
		"GET " + Root + "runs/{id}/why/{path...}": runPages{c}.why,
		"GET " + Root + "runs/{id}/compare":       runPages{c}.compare,
		"GET " + Root + "keys/{flow}/{key...}":    runPages{c}.key,
		"GET " + Root + "keys/{flow}":             runPages{c}.key,
		"GET " + Root + "queue":                   systems{c}.queue,
		"GET " + Root + "incidents":               c.incidents,
		"GET " + Root + "incidents.md":            c.incidents,
		"GET " + Root + "triggers":                clocks{c}.triggers,
		"GET " + Root + "audit":                   c.audit,
		"GET " + Root + "costs":                   c.costs,
		"GET " + Root + "versions":                c.versions,
		"GET " + StyleGuide:                       c.styleGuide,
		"GET " + Root + "playground":              c.playground,
		"POST " + Root + "playground":             c.playground,
		"GET " + DocsRoot:                         c.docs,
		"GET " + DocsRoot + "/{page...}":          c.docs,
		"GET " + Root + "marks":                   c.marks,
		"GET " + Root + "data":                    c.data,
		"GET " + Root + "static/{file}":           c.file,
		"GET " + SignInPage:                       c.signIn,
		"POST " + SignInPage:                      c.signIn,
		"POST " + SignOutPage:                     c.signOut,
		"GET " + SubmitPage:                       submission{c}.submitPage,
		"POST " + SubmitPage:                      submission{c}.submit,
		"GET " + Root + "{rest...}":               c.elsewhere,
		"POST " + Root + "controls/{path...}":     switching{c}.control,
		"POST " + Root + "triggers/{id}":          clocks{c}.steer,
		"POST " + Root + "runs":                   runPages{c}.redrive,
		"POST " + Root + "runs/{id}":              runPages{c}.steer,
	}
	for _, p := range c.o.Pages {
		if p.In == "" {
			all["GET "+Root+p.Pattern] = c.added(p)
		}
	}
	mux := http.NewServeMux()
	for pattern, serve := range all {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			end, err := c.readForm(w, r)
			defer end()
			if err == nil {
				err = serve(w, r)
			}
			if err != nil {
				c.fail(w, r, err)
			}
		})
	}
	return mux
}

// elsewhere leads to the first page from the root of the others.
func (c *Console) elsewhere(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("rest") != "" {
		return NotFound("There is no such page.")
	}
	http.Redirect(w, r, Overview, http.StatusFound)
	return nil
}

// styleGuide shows the design language, for who changes it.
func (c *Console) styleGuide(w http.ResponseWriter, r *http.Request) error {
	if !c.o.Dev {
		return NotFound("There is no such page. procaas dev has it.")
	}
	c.show(w, r, http.StatusOK, "styleguide", "Style guide", map[string]any{
		"Chips": []string{"good", "fair", "bad", "off", "waiting", "running", "parked", "succeeded", "failed", "skipped", "cancelled"},
		"Moods": []string{"good", "fair", "bad", "out", "held", "off", "idle"}, "Line": []float64{1, 3, 2, 5, 4, 6, 5},
	})
	return nil
}

const (
	// maxForm bounds what a form sends, in bytes, far above what anybody types.
	maxForm = 256 << 10

	// maxSignIn bounds the form of the sign-in page, in bytes. Anybody may send it, so it has neither
	// the room nor the memory of the others.
	maxSignIn = 16 << 10

	// Sign-in forms share maxStrange bytes of memory. Small ones do not need it, so nobody can keep
	// people from signing in.
	maxStrange   = 1 << 20
	smallStrange = 1 << 10
)

// readForm reads a form before anything is done by it: half a form would say something else
// than its sender, and a search without its conditions finds everything. The returned function
// ends the request.
func (c *Console) readForm(w http.ResponseWriter, r *http.Request) (end func(), err error) {
	end = func() {}
	most := int64(maxForm)
	switch {
	case r.Method != http.MethodPost:
		r.Body = http.NoBody // FormValue would read a body of several parts, also of a GET
	case r.URL.Path == SignInPage:
		most = maxSignIn
		body := &strangeBody{ReadCloser: r.Body, all: c.strange}
		r.Body, end = body, body.end
	}
	if r.ContentLength > most {
		err = &http.MaxBytesError{Limit: most}
	} else {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		err = r.ParseForm()
	}
	var busy *apiproblem.Problem
	switch {
	case err == nil:
		return end, nil
	case errors.As(err, new(*http.MaxBytesError)):
		w.Header().Set("Connection", "close")
		return end, &Refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("The form is too large: the limit is %d KiB.", most>>10)}
	case errors.As(err, &busy):
		maps.Copy(w.Header(), busy.Header)
		return end, &Refused{busy.Status, "The server has no memory for the form now, and nothing was changed. Send it again."}
	}
	return end, &Refused{http.StatusBadRequest, "The form arrived incomplete, and nothing was changed. Send it again."}
}

// A strangeBody is the body of somebody who has not signed in.
type strangeBody struct {
	io.ReadCloser
	all   *atomic.Int64 // bytes of all of them, without small ones
	got   int64
	taken int64
}

// Read implements [io.Reader].
func (b *strangeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	if b.got > smallStrange && n > 0 {
		b.taken += int64(n)
		if b.all.Add(int64(n)) > maxStrange {
			return 0, apiproblem.New(apiproblem.Overloaded, "too many people sign in at once").With("Retry-After", "1").With("Connection", "close")
		}
	}
	return n, err
}

func (b *strangeBody) end() { b.all.Add(-b.taken) }

// Public reports whether a path of the console needs no token: where one signs in, and
// what that page is made of.
func Public(path string) bool {
	const static = Root + "static/"
	return path == SignInPage || len(path) > len(static) && path[:len(static)] == static
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "same-origin")
	of := c
	if g := c.o.Caller(r); g.Bound() && g.Has(credentials.RoleViewer) {
		scoped, err := c.scopedTo(g, r)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		of = scoped
	}
	of.mux.ServeHTTP(w, r)
}

// Ended returns a channel that is closed when Run ends: answers that last end then.
func (c *Console) Ended() <-chan struct{} { return c.ended }

// Run samples what charts show until ctx ends.
func (c *Console) Run(ctx context.Context) error {
	defer close(c.ended)
	tick := time.NewTicker(seen.SampleEvery)
	defer tick.Stop()
	written := time.Now()
	for {
		now, handlers, numbers := time.Now(), c.o.Engine.Active(), c.o.Engine.Numbers()
		c.history.Sample(now, handlers, numbers)
		c.sample(ctx)
		c.evidence.Take(now, numbers, handlers, incidents(c.problems(), now))
		if now.Sub(written) >= seen.EvidenceWrites {
			written = now
			c.writeEvidence(ctx)
		}
		select {
		case <-ctx.Done():
			c.writeEvidence(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
		}
	}
}

func (c *Console) writeEvidence(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, seen.SampleEvery)
	defer cancel()
	if err := c.evidence.Write(ctx); err != nil {
		c.o.Log.Debug("evidence of incidents is written later", "error", err)
	}
}

// A Refused is an error for people, with a status.
type Refused struct {
	Status int
	Text   string
}

// Error implements error.
func (r *Refused) Error() string { return r.Text }

// NotFound is for pages of what does not exist.
func NotFound(text string) error { return &Refused{http.StatusNotFound, text} }

// fail shows an error as a page.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusServiceUnavailable, "The store cannot be read now. The page tries again by itself."
	var refused *Refused
	var control *guard.ControlError
	switch {
	case errors.As(err, &refused):
		status, text = refused.Status, refused.Text
		if status == http.StatusForbidden && c.o.NoteRefusal != nil {
			c.o.NoteRefusal(r, text)
		}
	case errors.As(err, &control):
		status, text = http.StatusConflict, control.Message
	case errors.Is(err, clock.ErrTooLong):
		text = "Reading the run took too long. The page tries again by itself."
	case errors.Is(err, store.ErrCursor):
		status, text = http.StatusBadRequest, "The list has no such page. Start at its first page."
	case errors.Is(err, store.ErrSealed):
		status, text = http.StatusBadRequest, "The store is encrypted, so it cannot search in payloads and errors. Search by key, label or time."
	case errors.Is(err, explain.ErrNoHandler):
		status, text = http.StatusNotFound, err.Error()
	case errors.Is(err, store.ErrNotFound):
		status, text = http.StatusNotFound, "There is no such run. The server deletes runs after their retention."
	case errors.As(err, new(*intake.RerunError)), errors.As(err, new(*steering.BackfillError)), errors.As(err, new(*intake.Error)),
		errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrStale):
		status, text = http.StatusConflict, err.Error()
	default:
		c.o.Log.Warn("page cannot be shown", "path", r.URL.Path, "error", err)
	}
	c.show(w, r, status, "error", "Not possible", errorPage{Text: text, Retry: status == http.StatusServiceUnavailable})
}

type errorPage struct {
	Text  string
	Retry bool
}
