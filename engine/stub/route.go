package stub

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// errNoMatch reports that a route's condition is false.
var errNoMatch = errors.New("the route does not fit")

// An incident can be switched while requests are served.
type incident struct {
	spec *Incident
	on   atomic.Bool
}

// A route is a route at work.
type route struct {
	spec     *Route
	segments []string
	latency  latency
	crowd    *crowd // nil: no overload
	seed     uint64
	calls    atomic.Int64
}

func newRoute(spec *Route, seed uint64) (*route, error) {
	l, err := parseLatency(spec.Latency)
	if err != nil {
		return nil, err
	}
	r := &route{spec: spec, segments: strings.Split(spec.Path, "/"), latency: l, seed: seed}
	if spec.Overload != nil {
		r.crowd = &crowd{spec: spec.Overload}
	}
	return r, nil
}

// match reports whether the route matches a method and an escaped path, and returns the values of
// segments in braces.
func (r *route) match(method, path string) (map[string]any, bool) {
	if r.spec.Method != "" && r.spec.Method != method {
		return nil, false
	}
	params := make(map[string]any)
	for i, want := range r.segments {
		segment, rest, more := strings.Cut(path, "/")
		if more == (i == len(r.segments)-1) {
			return nil, false
		}
		have, err := url.PathUnescape(segment)
		if name, ok := paramName(want); ok && have != "" {
			params[name] = have
		} else if err != nil || have != want {
			return nil, false
		}
		path = rest
	}
	return params, true
}

// paramName returns the name of a segment in braces.
func paramName(segment string) (string, bool) {
	inner, opened := strings.CutPrefix(segment, "{")
	name, closed := strings.CutSuffix(inner, "}")
	return name, opened && closed
}

// hangUp is the status of a missing answer.
const hangUp = 0

// An answer is the answer of a route, and how long it takes.
type answer struct {
	latency     time.Duration
	crowd       *crowd // the crowd of the answer, or nil
	status      int    // or hangUp
	headers     map[string]any
	contentType string
	body        []byte
}

// answer computes the answer to the next call. in is the present incident, or nil.
func (r *route) answer(request map[string]any, in *Incident) (answer, error) {
	env := datum.Env{"request": request, "calls": int(r.calls.Load()) + 1}
	if r.spec.When != nil {
		fits, err := r.spec.When.Eval(env)
		if err != nil {
			return answer{}, err
		}
		if fits != true {
			return answer{}, errNoMatch
		}
	}
	n := r.calls.Add(1)
	env["calls"] = int(n)
	chance := rand.New(rand.NewPCG(r.seed, uint64(n)))
	a := answer{latency: r.latency.draw(chance), crowd: r.crowd}
	// The route's own failure is drawn first, so that an incident does not change it.
	var down *Failure
	if in != nil {
		down = in.Failure
	}
	if in != nil && in.Latency > 0 {
		a.latency = in.Latency
	}
	for _, f := range []*Failure{r.spec.Failure, down} {
		if roll := chance.Float64(); f != nil && roll < f.Ratio {
			return a.fail(f, env)
		}
	}
	return a.succeed(r.spec.Reply, env)
}

func (a answer) fail(f *Failure, env datum.Env) (answer, error) {
	if f.Hang > 0 {
		a.latency, a.status = f.Hang, hangUp
		return a, nil
	}
	a.status = f.Status
	return a.fill(f.Body, env)
}

func (a answer) succeed(reply *Reply, env datum.Env) (answer, error) {
	if reply == nil {
		a.status = http.StatusOK
		return a, nil
	}
	a.status = reply.Status
	headers, err := reply.Headers.Eval(env)
	if err != nil {
		return a, err
	}
	a.headers, _ = headers.(map[string]any)
	return a.fill(reply.Body, env)
}

// fill computes the body. Text is sent unchanged if headers have a content type. Everything else is
// sent as JSON.
func (a answer) fill(body *expr.Value, env datum.Env) (answer, error) {
	if body == nil {
		return a, nil
	}
	data, err := body.Eval(env)
	if err != nil {
		return a, err
	}
	if text, ok := data.(string); ok && a.named("Content-Type") {
		a.body = []byte(text)
		return a, nil
	}
	a.contentType = "application/json"
	a.body, err = datum.FormatKinds(data)
	return a, err
}

func (a answer) named(header string) bool {
	for name := range a.headers {
		if strings.EqualFold(name, header) {
			return true
		}
	}
	return false
}

func (a answer) write(w http.ResponseWriter) {
	if a.contentType != "" {
		w.Header().Set("Content-Type", a.contentType)
	}
	for name, value := range a.headers {
		w.Header().Set(name, fmt.Sprint(value))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the caller may be gone
}
