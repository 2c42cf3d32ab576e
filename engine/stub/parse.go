package stub

import (
	"reflect"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
	"procaas/dsl/urls"
)

// request is what routes know of a request: [engine.RequestData], and the parameters of the path.
var request = typing.Record(map[string]*typing.Outline{
	"method": typing.OfShape(datum.StringShape), "path": typing.OfShape(datum.StringShape), "query": typing.OfShape(datum.MapShape),
	"params": typing.OfShape(datum.MapShape), "headers": typing.OfShape(datum.MapShape), "body": nil,
})

// Parse parses stub files as one spec, with the seed of the first file. The spec is nil exactly if
// a finding is an error.
func Parse(files []diag.File) (*Spec, []diag.Diagnostic) {
	c := checker{whole: &Spec{}, services: map[string]diag.Span{}, incidents: map[string]diag.Span{}}
	spec := spec.OfFile(reflect.TypeFor[Spec](), spec.Read(specFiles))
	spec.Name = "File" // as authors call it
	for i, f := range files {
		var one Spec
		found := decode.File(f, spec, &one, &expr.Scope{Roots: []string{"request", "calls"}, Outlines: map[string]*typing.Outline{"request": request}})
		for _, d := range found {
			c.Report(d)
		}
		if i == 0 {
			c.whole.Seed = one.Seed
		}
		for _, s := range one.Services {
			c.service(s)
		}
	}
	found := c.Diagnostics()
	if diag.HasErrors(found) {
		return nil, found
	}
	return c.whole, found
}

// A checker checks what the tags of the structs cannot express.
type checker struct {
	diag.Reporter
	whole     *Spec
	services  map[string]diag.Span
	incidents map[string]diag.Span
}

func (c *checker) service(s *Service) {
	c.whole.Services = append(c.whole.Services, s)
	c.once(c.services, s.ID, s.Span, "service")
	c.listen(s)
	paths := make([]string, len(s.Routes))
	for i, r := range s.Routes {
		paths[i] = r.Path
		c.route(r)
	}
	for _, in := range s.Incidents {
		c.once(c.incidents, in.ID, in.Span, "incident")
		if in.Failure == nil && in.Latency == 0 {
			c.Errorf(in.Span, rules.Missing, "write failure: {status: 503}, or latency: 3s", "the incident has neither \"failure\" nor \"latency\"")
		}
		if in.Route != "" && !slices.Contains(paths, in.Route) {
			hint := "the routes are " + strings.Join(paths, ", ")
			if near := diag.Suggest(in.Route, paths); near != "" {
				hint = "did you mean " + near + "?"
			}
			c.Errorf(in.Span, rules.Body, hint, "incident %s: service %s has no route %s", in.ID, s.ID, in.Route)
		}
	}
}

// once reports a repeated id.
func (c *checker) once(seen map[string]diag.Span, id string, at diag.Span, what string) {
	first, again := seen[id]
	if !again {
		seen[id] = at
		return
	}
	c.Report(diag.Diagnostic{
		Span: at, Code: rules.Body, Hint: "choose another id",
		Message: "a second stub " + what + " is called " + id,
		Related: []diag.Related{{Span: first, Message: "the first one"}},
	})
}

// listen requires a loopback address, because a stub service answers everybody.
func (c *checker) listen(s *Service) {
	if urls.OnlyThisMachine(s.Listen) {
		return
	}
	c.Errorf(s.Span, rules.Body, "", "stub service %s: want a loopback address and a port to listen on, such as 127.0.0.1:9081, have %q",
		s.ID, s.Listen)
}

func (c *checker) route(r *Route) {
	if !strings.HasPrefix(r.Path, "/") {
		c.Errorf(r.Span, rules.Body, "", "the path of a route must begin with /, have %q", r.Path)
	}
	var names []string
	for segment := range strings.SplitSeq(r.Path, "/") {
		name, ok := paramName(segment)
		switch {
		case ok && name != "" && !slices.Contains(names, name):
			names = append(names, name)
		case ok:
			c.Errorf(r.Span, rules.Body, "", "each segment in braces needs a name of its own, have %q", r.Path)
		case strings.ContainsAny(segment, "{}?#"):
			c.Errorf(r.Span, rules.Body, "braces stand for a whole segment, such as /orders/{id}; test the query with when",
				"the path of a route cannot hold %q", segment)
		}
	}
	if _, err := parseLatency(r.Latency); err != nil {
		c.Errorf(r.Latency.Span, rules.Body, "", "%s", err)
	}
}
