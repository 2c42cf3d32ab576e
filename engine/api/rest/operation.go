package rest

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine/api/problem"
)

// An Operation is one route: its implementation and its description.
type Operation struct {
	Method, Path, ID string
	Need             Need // of the caller
	Tag              string
	Summary          string // one line
	About            string // the rest; may be empty

	// Example is an example of the body that [Typed] reads. Nil if there is none.
	Example any

	// Body describes a body that is read by hand. schema makes schemas of types.
	Body func(schema func(v any) *huma.Schema) *huma.RequestBody

	// MaxBody is the largest body in bytes, where it may be larger than that of other calls. 0 means that of the server.
	MaxBody int64

	// Replies lists the successful replies, the usual one first. If that one has no body, it gets
	// the result type of [Typed].
	Replies  []Reply
	Refusals []string       // its own problem codes, of [problem.Table]
	Problems []problem.Kind // its own problems that the table does not have

	// Serve answers. [Typed] makes it.
	Serve func(*Call) error

	// Waits returns how much longer than [RequestTime] a request may take, because its caller waits for something. Nil is no longer.
	Waits func(*http.Request) time.Duration

	// Lasts reports whether a request has its own deadlines, such as a stream has. Nil is false.
	Lasts func(*http.Request) bool

	// Quick answers some requests before the checks of all requests and the router, and passes the others to next. It calls
	// admit before it answers. If that returns false, the caller was refused. Nil answers none.
	Quick func(next http.Handler, admit func(http.ResponseWriter, *http.Request) bool) http.Handler

	takes shape
}

// Time returns how long the work for a request may take, or 0 if the request has its own deadlines.
func (o *Operation) Time(r *http.Request) time.Duration {
	switch {
	case o.Lasts != nil && o.Lasts(r):
		return 0
	case o.Waits != nil:
		return RequestTime + o.Waits(r)
	}
	return RequestTime
}

// A Reply is one successful reply of an operation.
type Reply struct {
	Status      int // 200 by default
	About       string
	Body        any    // a value of the type that is sent as JSON; nil for other content
	Or          []any  // other forms of the body
	ContentType string // of other content, or of a stream in addition to the body
	Example     any
	Headers     []string // such as "Location: the run"
}

// Nothing is the input of a call without parameters and body.
type Nothing struct{}

// Typed makes an operation from a function. It reads the input from the request by the tags of In.
// The function's result is the answer, and its error the refusal.
func Typed[In, Out any](o Operation, serve func(*Call, *In) (Out, error)) Operation {
	takes := shapeOf(reflect.TypeFor[In](), o.Path)
	o.takes = takes
	var none Out
	if first := &o.Replies[0]; first.Body == nil {
		first.Body = none
	}
	o.Serve = func(c *Call) error {
		var in In
		if err := takes.read(c, reflect.ValueOf(&in).Elem()); err != nil {
			return err
		}
		out, err := serve(c, &in)
		if err != nil || c.answered {
			return err
		}
		return c.Reply(cmp.Or(c.status, o.Replies[0].Status, http.StatusOK), out)
	}
	return o
}

// WithParameters adds the parameters of In to an operation that [Typed] does not make.
func WithParameters[In any](o Operation, serve func(c *Call, in *In) error) Operation {
	takes := shapeOf(reflect.TypeFor[In](), o.Path)
	o.takes = takes
	o.Serve = func(c *Call) error {
		var in In
		if err := takes.readParameters(c.R, reflect.ValueOf(&in).Elem()); err != nil {
			return err
		}
		return serve(c, &in)
	}
	return o
}

// OK is the only successful reply.
func OK(about string) []Reply { return []Reply{{About: about}} }

// strict reports whether the operation refuses unknown query parameters. A caller that puts
// ?dry_run=true into the query instead of the body must not change what it only wanted to preview.
// Senders of events and callers of health or metrics often add their own parameters, which are
// harmless there.
func (o *Operation) strict() bool { return o.Tag != "events" && o.Tag != "status" }

// CheckQuery refuses unknown query parameters.
func (o *Operation) CheckQuery(r *http.Request) error {
	if r.URL.RawQuery == "" || !o.strict() {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem.Parameter([]problem.Fault{{Location: "query", Message: "want name=value pairs with & between them and percent signs " +
			"that encode bytes: " + err.Error()}})
	}
	f := TextFields("query/", nil)
	for _, m := range o.takes.parameters {
		if m.in == "query" {
			f.known = append(f.known, m.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(f.known, name) {
			f.Fault(name, "unknown parameter %q; %s", name, f.Suggest(name))
		}
	}
	return problem.Parameter(f.Faults)
}
