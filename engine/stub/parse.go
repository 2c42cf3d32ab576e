package stub

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"procaas/dsl"
)

// Parse reads stub files and makes one spec of them; the seed is that of the
// first file. The spec is nil exactly when one of the findings is an error.
func Parse(files []dsl.File) (*Spec, []dsl.Diagnostic) {
	c := checker{whole: &Spec{}, services: map[string]dsl.Span{}, incidents: map[string]dsl.Span{}}
	spec := dsl.FileSpec(reflect.TypeFor[Spec](), specSource)
	for i, f := range files {
		var one Spec
		found := dsl.DecodeFile(f, spec, &one, []string{"request", "calls"})
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
	if dsl.HasErrors(found) {
		return nil, found
	}
	return c.whole, found
}

// A checker reports what the tags of the structs cannot say.
type checker struct {
	dsl.Reporter
	whole     *Spec
	services  map[string]dsl.Span
	incidents map[string]dsl.Span
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
		if in.Route != "" && !slices.Contains(paths, in.Route) {
			hint := "the routes are " + strings.Join(paths, ", ")
			if near := dsl.Suggest(in.Route, paths); near != "" {
				hint = "did you mean " + near + "?"
			}
			c.Errorf(in.Span, dsl.CodeBody, hint, "incident %s: service %s has no route %s", in.ID, s.ID, in.Route)
		}
	}
}

// once reports an id that was given before.
func (c *checker) once(seen map[string]dsl.Span, id string, at dsl.Span, what string) {
	first, again := seen[id]
	if !again {
		seen[id] = at
		return
	}
	c.Report(dsl.Diagnostic{
		Span: at, Code: dsl.CodeBody, Hint: "choose another id",
		Message: "a second stub " + what + " is called " + id,
		Related: []dsl.Related{{Span: first, Message: "the first one"}},
	})
}

// listen wants a loopback address: a stub service answers everybody.
func (c *checker) listen(s *Service) {
	host, _, err := net.SplitHostPort(s.Listen)
	if err == nil {
		if addr, wrong := netip.ParseAddr(host); host == "localhost" || wrong == nil && addr.IsLoopback() {
			return
		}
	}
	c.Errorf(s.Span, dsl.CodeBody, "", "stub service %s: want a loopback address and a port to listen on, such as 127.0.0.1:9081, have %q", s.ID, s.Listen)
}

func (c *checker) route(r *Route) {
	if !strings.HasPrefix(r.Path, "/") {
		c.Errorf(r.Span, dsl.CodeBody, "", "the path of a route must begin with /, have %q", r.Path)
	}
	var names []string
	for segment := range strings.SplitSeq(r.Path, "/") {
		name, ok := paramName(segment)
		switch {
		case ok && name != "" && !slices.Contains(names, name):
			names = append(names, name)
		case ok:
			c.Errorf(r.Span, dsl.CodeBody, "", "each segment in braces needs a name of its own, have %q", r.Path)
		case strings.ContainsAny(segment, "{}?#"):
			c.Errorf(r.Span, dsl.CodeBody, "braces stand for a whole segment, such as /orders/{id}; test the query with when",
				"the path of a route cannot hold %q", segment)
		}
	}
	if _, err := parseLatency(r.Latency); err != nil {
		c.Errorf(r.Latency.Span, dsl.CodeBody, "", "%s", err)
	}
}
