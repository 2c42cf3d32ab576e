package rest

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine/api/problem"
)

// An Operation is one route: how it is served, and how it is described.
type Operation struct {
	Method, Path, ID string
	Tag              string
	Summary          string // one line
	About            string // the rest; may be empty

	// Example is one of the body that [Typed] reads; nil when it takes none.
	Example any

	// Body describes one that is read by hand. The function makes schemas of types.
	Body func(schema func(v any) *huma.Schema) *huma.RequestBody

	// Replies lists the ways in which the operation succeeds, the usual one first. The
	// type of that one's body is what [Typed] answers with, when none is given.
	Replies  []Reply
	Refusals []string // codes of problems that are its own

	// Serve answers. [Typed] makes it.
	Serve func(*Call) error

	takes shape
}

// A Reply is one way in which an operation succeeds.
type Reply struct {
	Status      int // 200 when it is left out
	About       string
	Body        any    // a value of the type that is sent as JSON; nil for other content
	Or          []any  // the same for other forms
	ContentType string // of other content, or of a stream beside the body
	Example     any
	Headers     []string // such as "Location: the run"
}

// Nothing is what a call takes that has no parameters and no body.
type Nothing struct{}

// Typed lets a function answer an operation. What it takes is read from the request by the
// tags of In, and what it gives is the answer; its error is the refusal.
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

// WithParameters lets an operation that [Typed] does not make take the parameters of In.
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

// OK is a single way to succeed.
func OK(about string) []Reply { return []Reply{{About: about}} }

// strict reports whether the operation refuses parameters of the query that it does not
// know: who writes ?dry_run=true where a body says so would change what he wanted to
// look at. Senders of events and those who ask for health or metrics are often programs
// that add parameters of their own, and nothing that they say there changes anything.
func (o *Operation) strict() bool { return o.Tag != "events" && o.Tag != "status" }

// CheckQuery refuses a query with other parameters than those of the operation.
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
