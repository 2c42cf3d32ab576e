package advice

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// adviseStages reports stages that wait for the previous one without needing its results. It looks only at
// stages that query and compute. The order of effects may be intended.
func (c *advisor) adviseStages() {
	at := 0
	for n, s := range c.Declared.Stages {
		begin := at
		at += len(steps.OfStage(s))
		if n == 0 || s.Final {
			continue
		}
		before := c.Declared.Stages[n-1]
		if !c.onlyAsks(before) || !c.onlyAsks(s) || c.related(begin-len(steps.OfStage(before)), begin, at) {
			continue
		}
		c.Report(diag.Diagnostic{
			Span: s.PlaceOf("id", s.Span), Severity: diag.Advice, Code: rules.NeedlessStage,
			Message: fmt.Sprintf("stage %q waits for stage %q and needs nothing of it", s.ID, before.ID),
			Hint:    fmt.Sprintf("move its handlers into %q: they would run at the same time", before.ID),
			Related: []diag.Related{{Span: before.PlaceOf("id", before.Span), Message: "the stage before"}},
		})
	}
}

// onlyAsks reports whether a stage makes calls, none of which has an effect.
func (c *advisor) onlyAsks(s *tree.Stage) bool {
	if !s.Enabled.IsNull() || len(s.Choose) > 0 || s.Loop() != nil {
		return false
	}
	asks := false
	for _, h := range s.Handlers {
		asks = asks || c.Types.Fetches(h)
		if !c.Types.Fetches(h) && !c.Types.SetsState(h) {
			return false
		}
	}
	return asks
}

// related reports whether any handler in [middle, end) must wait for one in [begin, middle).
func (c *advisor) related(begin, middle, end int) bool {
	for i := begin; i < middle; i++ {
		for j := middle; j < end; j++ {
			if c.needs(j, i) || c.orderly(i, j) {
				return true
			}
		}
	}
	return false
}

// adviseWrites reports calls of a stage that are sequential only because both set a name that nobody reads in
// between.
func (c *advisor) adviseWrites() {
	for j := range c.Steps {
		for i := j - 1; i >= 0 && c.Steps[i].Stage == c.Steps[j].Stage; i-- {
			if name, ok := c.accidental(i, j); ok {
				a, b := c.Steps[i], c.Steps[j]
				c.Report(diag.Diagnostic{
					Span: c.placeOfWrite(j, name), Severity: diag.Advice, Code: rules.AccidentalWrite,
					Message: fmt.Sprintf("%q waits for %q only because both set shared-state.%s, and no handler reads the value of %q", b.ID, a.ID, name, a.ID),
					Hint:    "set another name, or drop one of them: then they run at the same time",
					Related: []diag.Related{{Span: c.placeOfWrite(i, name), Message: "also set here"}},
				})
			}
		}
	}
}

// accidental returns the name that alone makes two calls of a stage sequential, although the first value is
// lost.
func (c *advisor) accidental(i, j int) (string, bool) {
	a, b := c.Steps[i].Handler, c.Steps[j].Handler
	if !c.Types.Calls(a) || !c.Types.Calls(b) || tree.Apart(a, b) || c.needs(j, i) || c.needs(i, j) ||
		slices.ContainsFunc(a.Touches, func(t string) bool { return slices.Contains(b.Touches, t) }) {
		return "", false
	}
	for _, name := range c.writes(i) {
		if !slices.Contains(c.writes(j), name) || c.Keeps(name) && !b.AlwaysSucceeds() {
			continue
		}
		if b.AlwaysSucceeds() && !c.readBetween(name, i, j) || !c.readBetween(name, 0, len(c.Steps)) {
			return name, true
		}
	}
	return "", false
}

// readBetween reports whether a handler in [begin, end) reads a name, except the first one's own write.
func (c *advisor) readBetween(name string, begin, end int) bool {
	for k := begin; k < end; k++ {
		if slices.ContainsFunc(c.read[k], func(r datum.Read) bool {
			return r.Path.Overlaps(datum.Path{expr.StateRoot, name})
		}) {
			return true
		}
	}
	return false
}

func (c *advisor) placeOfWrite(i int, name string) diag.Span {
	for _, a := range c.Assignments(i) {
		if a.Key.Name == name {
			return a.Key.Span
		}
	}
	return c.Steps[i].IDPlace()
}

// adviseCritical reports a handler among optional ones that is critical only by default.
func (c *advisor) adviseCritical() {
	at := 0
	for _, s := range c.Declared.Stages {
		begin := at
		at += len(steps.OfStage(s))
		odd := -1
		for k := begin; k < at; k++ {
			if !c.Steps[k].IsCritical() {
				continue
			}
			if odd >= 0 || c.Steps[k].Critical != nil {
				odd = -2
				break
			}
			odd = k
		}
		if odd <= begin || odd == at-1 || len(s.Handlers) < 3 || c.wanted(odd) {
			continue
		}
		h := c.Steps[odd]
		c.Advisef(h.IDPlace(), rules.LoneCritical, "write critical: false, or critical: true when the run must not succeed without it",
			"%q is critical in the midst of handlers that are not: a failure of it fails the run", h.ID)
	}
}

// wanted reports whether another handler reads what handler i sets.
func (c *advisor) wanted(i int) bool {
	for j := range c.Steps {
		if j != i && c.needs(j, i) {
			return true
		}
	}
	return slices.ContainsFunc(c.writes(i), c.Keeps)
}

// adviseRequests reports requests that are made twice, although nothing in between can change the reply.
func (c *advisor) adviseRequests() {
	for j := range c.Steps {
		if !c.Types.Fetches(c.Steps[j].Handler) || c.Steps[j].Branch != nil {
			continue
		}
		for i := j - 1; i >= 0; i-- {
			a, b := c.Steps[i], c.Steps[j]
			if !c.Types.Fetches(a.Handler) && !c.Types.SetsState(a.Handler) {
				break // an effect, or a pause
			}
			if a.Type != b.Type || a.Branch != nil || !sameValue(a.Body, b.Body) || c.changed(i, j) {
				continue
			}
			if !a.IsCritical() && b.IsCritical() || a.GoesOn() != nil || !expr.ImpliedBy(a.Demands(c.Parsed), b.Demands(c.Parsed)) {
				continue // the second one may be needed because the first failed
			}
			c.Report(diag.Diagnostic{
				Span: b.IDPlace(), Severity: diag.Advice, Code: rules.SameRequest,
				Message: fmt.Sprintf("%q makes the same request as %q", b.ID, a.ID),
				Hint:    fmt.Sprintf("read sources.%s.response", a.ID),
				Related: []diag.Related{{Span: a.IDPlace(), Message: "the first one"}},
			})
			break
		}
	}
}

// changed reports whether the inputs of handler j may have changed since handler i sent them.
func (c *advisor) changed(i, j int) bool {
	var reads []datum.Read
	for k := i; k < j; k++ {
		if len(c.writes(k)) > 0 && reads == nil {
			reads = c.Steps[j].Body.Reads()
		}
		for _, name := range c.writes(k) {
			if slices.ContainsFunc(reads, func(r datum.Read) bool { return r.Path.Overlaps(datum.Path{expr.StateRoot, name}) }) {
				return true
			}
		}
	}
	return false
}

// sameValue reports whether two values have the same source text.
func sameValue(a, b *expr.Value) bool {
	if a == nil || b == nil {
		return a.IsNull() && b.IsNull()
	}
	if a.Kind != b.Kind || a.Scalar != b.Scalar || a.Secret != b.Secret || len(a.Elems) != len(b.Elems) {
		return false
	}
	if a.Computed != nil && a.Computed.Source != b.Computed.Source && (!sameLetters(a.Computed.Source, b.Computed.Source) ||
		!slices.Equal(a.Computed.Tokens(), b.Computed.Tokens())) {
		return false
	}
	for i := range a.Elems {
		other := b.Elems[i]
		if a.Kind == expr.ValueMap {
			other = b.Get(a.Names[i].Name)
		}
		if other == nil || !sameValue(a.Elems[i], other) {
			return false
		}
	}
	return true
}

// sameLetters reports whether two texts differ only in spaces.
func sameLetters(a, b string) bool {
	for {
		a, b = strings.TrimLeft(a, " \t\n"), strings.TrimLeft(b, " \t\n")
		if a == "" || b == "" || a[0] != b[0] {
			return a == b
		}
		a, b = a[1:], b[1:]
	}
}
