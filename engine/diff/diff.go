package diff

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine/planner"
)

// A Diff has the differences of a new definition.
type Diff struct {
	Old     string       `json:"old" doc:"The hash of the definition before."`
	New     string       `json:"new" doc:"The hash of the definition for new events."`
	Changes []Difference `json:"changes" doc:"The differences; empty if there are none."`
}

// A Difference is one difference between two definitions.
type Difference struct {
	What   string        `json:"what" doc:"flow, pipeline, stage, handler, order, state, service, config or trigger."`
	Name   string        `json:"name" doc:"An id or a path."`
	Change string        `json:"change" doc:"added, removed, changed or moved."`
	Fields []FieldChange `json:"fields,omitempty"` // the different fields
	Why    string        `json:"why,omitempty"`    // for people
}

// A FieldChange is a field with another value. An empty value means that the field is missing.
type FieldChange struct {
	Field string `json:"field"` // as in files; dots separate levels: retry.attempts
	Old   string `json:"old"`   // in one line
	New   string `json:"new"`
}

// These are the kinds of things that differ. An order says that one handler waits for another. A
// state is a name of the shared state. Products have kinds of their own.
const (
	Flow     = "flow"
	Pipeline = "pipeline"
	Stage    = "stage"
	Handler  = "handler"
	Order    = "order"
	State    = "state"
	Service  = "service"
	Config   = "config"
	Trigger  = "trigger"
)

// These are the kinds of changes.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
	Moved   = "moved"
)

// A Side is one of the compared definitions.
type Side struct {
	Bundle *tree.Bundle
	Plans  []*planner.Plan
}

// Compare returns the differences of b from a. The error says why one of them cannot be planned. It
// plans both, because the order of handlers follows from all that they read and write, which a diff
// of files does not show.
func Compare(a, b *tree.Bundle, types []tree.Type, more ...Comparer) (Diff, error) {
	var sides [2]Side
	for i, bundle := range []*tree.Bundle{a, b} {
		p := planner.NewPlanner(bundle, types)
		sides[i].Bundle = bundle
		for _, pipeline := range bundle.Pipelines {
			plan, err := p.Plan(pipeline)
			if err != nil {
				return Diff{}, fmt.Errorf("definition %s: plan pipeline %s: %w", bundle.Hash, pipeline.ID, err)
			}
			sides[i].Plans = append(sides[i].Plans, plan)
		}
	}
	return ComparePlanned(sides[0], sides[1], more...), nil
}

// A Comparison collects differences.
type Comparison struct{ found []Difference }

// Add adds a difference. The reason is for people, and may be empty.
func (c *Comparison) Add(what, name, change, why string, fields ...FieldChange) {
	c.found = append(c.found, Difference{What: what, Name: name, Change: change, Why: why, Fields: fields})
}

// Changed adds a difference if fields differ.
func (c *Comparison) Changed(what, name string, fields []FieldChange) {
	if len(fields) > 0 {
		c.Add(what, name, Changed, "", fields...)
	}
}

// A Comparer compares what an add-on has added to the language.
type Comparer func(c *Comparison, a, b *tree.Bundle)

// ComparePlanned returns the differences of b from a: flows and pipelines first, and last those of add-ons.
func ComparePlanned(a, b Side, more ...Comparer) Diff {
	c := &Comparison{found: []Difference{}}
	Pairs(c, Flow, a.Bundle.Flows, b.Bundle.Flows, func(f *tree.Flow) string { return f.ID }, c.flows)
	Pairs(c, Pipeline, a.Plans, b.Plans, func(p *planner.Plan) string { return p.Pipeline.ID }, func(old, now *planner.Plan) {
		c.plans(b.Bundle.Language, old, now)
	})
	Pairs(c, Service, a.Bundle.Services, b.Bundle.Services, func(s *tree.Service) string { return s.ID }, func(a, b *tree.Service) {
		c.Changed(Service, b.ID, Fields(a, b))
	})
	Pairs(c, Config, a.Bundle.Configs, b.Bundle.Configs, func(v *tree.Config) string { return v.Name }, func(a, b *tree.Config) {
		if old, now := planner.DataText(a.Value), planner.DataText(b.Value); old != now {
			c.Add(Config, b.Name, Changed, "", FieldChange{"value", old, now})
		}
	})
	Pairs(c, Trigger, a.Bundle.Triggers, b.Bundle.Triggers, func(t *tree.Trigger) string { return t.ID }, func(a, b *tree.Trigger) {
		c.Changed(Trigger, b.ID, Fields(a, b))
	})
	for _, compare := range more {
		compare(c, a.Bundle, b.Bundle)
	}
	return Diff{Old: a.Bundle.Hash, New: b.Bundle.Hash, Changes: c.found}
}

// Pairs matches two lists by id. Elements of one list only were removed or added, and those of both
// lists are compared.
func Pairs[T any](c *Comparison, what string, a, b []T, id func(T) string, both func(a, b T)) {
	old := map[string]T{}
	for _, v := range a {
		old[id(v)] = v
	}
	kept := map[string]bool{}
	for _, v := range b {
		was, ok := old[id(v)]
		kept[id(v)] = true
		if ok {
			both(was, v)
		} else {
			c.Add(what, id(v), Added, "")
		}
	}
	for _, v := range a {
		if !kept[id(v)] {
			c.Add(what, id(v), Removed, "")
		}
	}
}

// Edits says how things of one kind are identified, and what it means when one is added, removed or
// kept.
type Edits[T any] struct {
	Name           func(T) string
	Added, Removed string       // may be empty
	Both           func(a, b T) // compares elements of the same name
}

// List is [Pairs] with a warning for added and removed elements.
func List[T any](c *Comparison, what string, a, b []T, e Edits[T]) {
	from := len(c.found)
	Pairs(c, what, a, b, e.Name, e.Both)
	for i := range c.found[from:] {
		d := &c.found[from+i]
		switch {
		case d.What != what:
		case d.Change == Added:
			d.Why = e.Added
		case d.Change == Removed:
			d.Why = e.Removed
		}
	}
}

// Warned is Changed with what the change of each field means, which may be empty.
func (c *Comparison) Warned(what, name string, fields []FieldChange, means func(field FieldChange) string) {
	var why []string
	for _, f := range fields {
		if text := means(f); text != "" && !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	if len(fields) > 0 {
		c.Add(what, name, Changed, strings.Join(why, "; "), fields...)
	}
}

// flows compares two versions of a flow.
func (c *Comparison) flows(a, b *tree.Flow) {
	c.Changed(Flow, b.ID, Fields(a, b, "shared-state"))
	c.states(b.ID, a.SharedState, b.SharedState, "entities hold it, and nothing reads it any more")
}

// plans compares two versions of a pipeline, from outside to inside.
func (c *Comparison) plans(l *tree.Language, a, b *planner.Plan) {
	if a.Pipeline == b.Pipeline {
		return // both bundles share it, with all that it depends on: see dsl.Loader
	}
	id := b.Pipeline.ID
	c.Changed(Pipeline, id, pipelineChanges(l, a.Pipeline, b.Pipeline))
	c.states(id, a.Pipeline.SharedState, b.Pipeline.SharedState, "runs in flight may hold it")
	c.stages(a, b)
	c.handlers(a, b)
	c.orders(a, b)
}

// states compares the names of a shared state.
func (c *Comparison) states(owner string, a, b *expr.Value, lost string) {
	var added []string
	for i, k := range b.Keys() {
		name, now := owner+"/"+k.Name, planner.ValueText(b.Items()[i])
		if a.Get(k.Name) == nil {
			added = append(added, k.Name)
			c.Add(State, name, Added, "")
		} else if old := planner.ValueText(a.Get(k.Name)); old != now {
			c.Add(State, name, Changed, "", FieldChange{"first value", old, now})
		}
	}
	for _, k := range a.Keys() {
		if b.Get(k.Name) != nil {
			continue
		}
		why := lost
		if near := diag.Suggest(k.Name, added); near != "" {
			why += "; renamed to " + near + "? Its value does not follow"
		}
		c.Add(State, owner+"/"+k.Name, Removed, why)
	}
}

// stages finds stages that were added, removed or moved.
func (c *Comparison) stages(a, b *planner.Plan) {
	id := b.Pipeline.ID
	ids := func(p *planner.Plan) (out []string) {
		for _, s := range p.Stages {
			out = append(out, s.ID)
		}
		return out
	}
	old, now := ids(a), ids(b)
	stay := longestCommon(old, now)
	for i, s := range now {
		switch {
		case !slices.Contains(old, s):
			c.Add(Stage, id+"/"+s, Added, fmt.Sprintf("as stage %d", i+1))
		case !slices.Contains(stay, s):
			c.Add(Stage, id+"/"+s, Moved, fmt.Sprintf("from stage %d to stage %d", slices.Index(old, s)+1, i+1))
		}
	}
	for _, s := range old {
		if !slices.Contains(now, s) {
			c.Add(Stage, id+"/"+s, Removed, "")
		}
	}
	for _, s := range b.Stages {
		if at := slices.Index(old, s.ID); at >= 0 {
			was := a.Stages[at].Declared
			changes := slices.Concat(conditionChanges(was, s.Declared), Fields(was, s.Declared, "enabled", "choose", "handlers",
				"shared-state"))
			c.Changed(Stage, id+"/"+s.ID, changes)
			c.states(id+"/"+s.ID, was.SharedState, s.Declared.SharedState, "elements in flight may hold it")
		}
	}
}

// longestCommon returns a longest common subsequence. Its stages have stayed, so that a swap shows
// only one moved stage. Pipelines have about ten stages, so copying lists is fast enough.
func longestCommon(a, b []string) []string {
	best := make([][][]string, len(a)+1)
	for i := range best {
		best[i] = make([][]string, len(b)+1)
	}
	for i, x := range a {
		for j, y := range b {
			best[i+1][j+1] = best[i][j+1]
			if len(best[i+1][j]) > len(best[i][j+1]) {
				best[i+1][j+1] = best[i+1][j]
			}
			if x == y {
				best[i+1][j+1] = append(slices.Clone(best[i][j]), x)
			}
		}
	}
	return best[len(a)][len(b)]
}

// handlers matches handlers by path. One that was removed and added in another stage has moved.
func (c *Comparison) handlers(a, b *planner.Plan) {
	gone := map[string][]*planner.Step{} // by id
	for _, s := range a.Written {
		if b.Step(s.Path) == nil {
			gone[s.Handler.ID] = append(gone[s.Handler.ID], s)
		}
	}
	moved := map[*planner.Step]bool{}
	for _, s := range b.Written {
		was := a.Step(s.Path)
		// If two removed handlers have the same id, it is unclear which one has moved, so none has.
		if old := gone[s.Handler.ID]; was == nil && len(old) == 1 && !moved[old[0]] {
			was = old[0]
			moved[was] = true
			c.Add(Handler, s.Path, Moved, "from "+was.Path, handlerChanges(was.Handler, s.Handler)...)
		} else if was != nil {
			c.Changed(Handler, s.Path, handlerChanges(was.Handler, s.Handler))
		} else {
			c.Add(Handler, s.Path, Added, criticality(s.Handler))
		}
	}
	for _, s := range a.Written {
		if b.Step(s.Path) == nil && !moved[s] {
			c.Add(Handler, s.Path, Removed, criticality(s.Handler))
		}
	}
}

// criticality returns what adding or removing a handler means for runs.
func criticality(h *tree.Handler) string {
	if h.IsCritical() {
		return "critical"
	}
	return "not critical"
}

// orders finds handlers of both plans that must wait for each other in only one.
func (c *Comparison) orders(a, b *planner.Plan) {
	list := func(in, other *planner.Plan, change string) {
		for _, s := range in.Written {
			for _, e := range s.Direct() {
				from, to := other.Step(e.From.Path), other.Step(s.Path)
				if from == nil || to == nil || to.WaitsFor(from) {
					continue
				}
				c.Add(Order, s.Path, change, e.Reason().Why, FieldChange{
					Field: "after", Old: only(change == Removed, e.From.Path), New: only(change == Added, e.From.Path),
				})
			}
		}
	}
	list(b, a, Added)
	list(a, b, Removed)
}

// only returns the text if when is true, or empty.
func only(when bool, text string) string {
	if when {
		return text
	}
	return ""
}
