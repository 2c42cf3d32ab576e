package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A scope has the values that a run's expressions read, and the shared state that they set. Values in
// it are never changed, only replaced: results of expressions may share memory with them.
type scope struct {
	plan   *planner.Plan
	extent *extent

	root    string         // event, or inputs inside a call
	origin  map[string]any // the value of root; nil for an event that nothing has read
	flow    map[string]any // the root flow; nil if nothing has read it
	self    map[string]any // the root run; nil if nothing has read it
	began   time.Time      // when the run began
	shared  state
	sources sources

	roots datum.Env         // memory for env
	raw   checkpoint.Values // shared as JSON
	size  int               // of raw, as [model.StateSize] counts it
	wrote []string          // names of shared that handlers have set, sorted

	// Only an element of a repeated stage has the following: the scope of the run around it, and
	// the element.
	outer *scope // nil elsewhere
	at    unit
}

// env returns the roots of expressions. They are valid until the next call.
func (s *scope) env(live Live) datum.Env {
	if s.outer != nil {
		return s.elementEnv(live)
	}
	clear(s.roots)
	if s.origin == nil {
		s.roots[s.root] = (*eventRoot)(s)
	} else {
		s.roots[s.root] = s.origin
	}
	s.roots["flow"], s.roots["run"] = (*flowRoot)(s), (*runRoot)(s)
	s.roots["configs"] = live.Configs
	s.roots[planner.SharedRoot], s.roots[planner.SourcesRoot] = s.shared, s.sources
	return s.roots
}

// envOf returns the roots of expressions in the calls of a unit.
func (s *scope) envOf(u unit, live Live) datum.Env {
	env := s.env(live)
	if u.item > 0 {
		env["item"], env["index"] = u.of.each.items[u.item-1], u.item-1
	}
	return env
}

// elementEnv returns the roots of expressions inside an element: those of the run, what the element
// itself has set, and the element. The run's values do not change before all elements are done.
func (s *scope) elementEnv(live Live) datum.Env {
	env := s.outer.envOf(s.at, live)
	env[planner.SharedRoot] = both(s.outer.shared, s.shared)
	around, _ := env[planner.SourcesRoot].(sources)
	env[planner.SourcesRoot] = both(around, s.sources)
	return env
}

// both merges two mappings. Values of the second win.
func both[M ~map[string]V, V any](first, second M) M {
	out := make(M, len(first)+len(second))
	maps.Copy(out, first)
	maps.Copy(out, second)
	return out
}

// begins sets the root run.
func (s *scope) begins(began time.Time) { s.began, s.self = began, nil }

// condition evaluates a condition. why explains to people why it does not hold. A missing condition
// holds.
func (s *scope) condition(v *expr.Value, name string, live Live) (holds bool, why string, err error) {
	if v.IsNull() {
		return true, "", nil
	}
	got, err := v.Share(s.env(live))
	if err != nil {
		return false, "", err
	}
	holds, ok := got.(bool)
	if !ok {
		return false, "", fmt.Errorf("%s: %s: want true or false, have %s", v.Span, name, model.KindOf(got))
	}
	why = name + " is false"
	if e := v.Expr(); e != nil {
		why += ": " + model.CleanText(strings.Join(strings.Fields(e.Source), " "))
	}
	return holds, why, nil
}

// rolledOut reports whether the run is in the handler's share. why explains it to people. A value
// always has the same place among 100, so a growing share keeps the runs that it had.
func (s *scope) rolledOut(step *planner.Step, live Live) (in bool, why string, err error) {
	if live.Share == nil {
		return true, "", nil
	}
	percent, ok := live.Share(step)
	if !ok || percent >= 100 {
		return true, "", nil
	}
	by := any(s.extent.run.start.Key)
	if o := step.Handler.Rollout; o != nil && !o.By.IsNull() {
		if by, err = o.By.Share(s.env(live)); err != nil {
			return false, "", err
		}
	}
	raw, err := model.EncodeData(by)
	if err != nil {
		return false, "", fmt.Errorf("rollout: by: %w", err)
	}
	const digits = 13 // hexadecimal digits, as many as a float64 holds exactly
	n, err := strconv.ParseUint(model.Digest(step.Path, "rollout", string(raw))[:digits], 16, 64)
	if err != nil {
		return false, "", err
	}
	if at := float64(n) / (1 << (4 * digits)) * 100; at < percent {
		return true, "", nil
	}
	return false, fmt.Sprintf("rolled out to %g %%, and this run is not among them", percent), nil
}

// outputs evaluates the outputs of the run's pipeline.
func (s *scope) outputs(live Live) (any, error) {
	p := s.plan.Pipeline
	if s.outer != nil {
		return map[string]any(s.shared), nil // the element is over, so it sets nothing any more
	}
	data, err := p.Outputs.Share(s.env(live))
	if err != nil {
		return nil, err
	}
	outputs, _ := data.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		if err := p.OutputContract(name).Check(outputs[name]); err != nil {
			return nil, err
		}
	}
	if outputs == nil {
		return map[string]any{}, nil
	}
	return outputs, nil
}

// publish makes the outcome of a handler visible to later expressions. If two handlers have the
// same id, the later stage's wins.
func (s *scope) publish(id string, rec *record) { s.sources[id] = (*source)(rec) }

// sizeOf returns how much a name adds to the size of the shared state.
func (s *scope) sizeOf(name string) int {
	raw, ok := s.raw.Get(name)
	if !ok {
		return 0
	}
	return model.StateSize(name, raw)
}

// set sets a name of the shared state, and returns what it was.
func (s *scope) set(name string, value any, raw json.RawMessage) (was json.RawMessage) {
	s.shared[name] = value
	was, had := s.raw.Set(name, raw)
	s.size += model.StateSize(name, raw)
	if had {
		s.size -= model.StateSize(name, was)
	}
	return was
}

// noteWritten notes that a handler has set a name.
func (s *scope) noteWritten(name string) {
	if at, found := slices.BinarySearch(s.wrote, name); !found {
		s.wrote = slices.Insert(s.wrote, at, name)
	}
}

// assign sets names of the shared state from a mapping, for a handler. All expressions see the
// state before the mapping. Either all names are set or none.
func (s *scope) assign(rec *record, mapping *expr.Value, live Live) error {
	if len(mapping.Keys()) == 0 {
		return nil
	}
	return s.assignIn(rec, mapping, s.env(live))
}

// assignIn is assign with given roots.
func (s *scope) assignIn(rec *record, mapping *expr.Value, env datum.Env) error {
	keys, items := mapping.Keys(), mapping.Items()
	type entry struct {
		value any
		raw   json.RawMessage
	}
	var few [4]entry // enough for most mappings
	entries, size, added := few[:0], s.size, 0
	for i, k := range keys {
		value, err := items[i].Share(env)
		if err != nil {
			return err
		}
		raw, err := model.EncodeData(value)
		if err == nil {
			err = s.plan.Pipeline.StateContract(k.Name).Check(value)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", k.Span, k.Name, err)
		}
		entries = append(entries, entry{value, raw})
		size += model.StateSize(k.Name, raw) - s.sizeOf(k.Name)
		added += dataWeight(raw)
	}
	if limit := int(s.plan.Pipeline.MaxState); size > limit {
		raws := map[string]json.RawMessage{}
		for _, v := range s.raw {
			raws[v.Name] = v.Raw
		}
		for i, k := range keys {
			raws[k.Name] = entries[i].raw
		}
		return model.StateError(raws, limit)
	}
	if err := s.extent.grow(added); err != nil {
		return err
	}
	// Nothing can fail from here on.
	for i, k := range keys {
		rec.replaces(k.Name, s.set(k.Name, entries[i].value, entries[i].raw))
		s.noteWritten(k.Name)
	}
	return nil
}

// maxSeen bounds a value that is kept to explain a decision, in bytes.
const maxSeen = 1 << 10

// see saves the values that the conditions of a handler are about to read and others may change
// later, for explanations.
func (s *scope) see(step *planner.Step, rec *record) {
	if len(step.Fleeting) == 0 {
		return
	}
	saw := make([]checkpoint.Value, 0, len(step.Fleeting))
	for _, name := range step.Fleeting {
		if raw, _ := s.raw.Get(name); len(raw) <= maxSeen {
			saw = append(saw, checkpoint.Value{Name: name, Raw: raw})
		}
	}
	rec.saw = checkpoint.ValuesOf(saw)
}

// kept encodes the names of the flow's shared state that the run wrote, or returns nil.
func (s *scope) kept() []byte {
	var kept checkpoint.Values
	for _, n := range s.plan.Shared {
		if _, wrote := slices.BinarySearch(s.wrote, n.Name); wrote && n.Kept {
			raw, _ := s.raw.Get(n.Name)
			kept.Set(n.Name, raw)
		}
	}
	if kept == nil {
		return nil
	}
	return kept.Object()
}

// restore takes over the shared state. Names that the run has not written keep the values that it
// found, unless fresh is set, as it is after an operator's retry.
func (s *scope) restore(c checkpoint.Run, fresh bool) error {
	for _, n := range s.plan.Shared {
		wrote := slices.Contains(c.Wrote, n.Name)
		raw, ok := c.Shared.Get(n.Name)
		if !ok || fresh && n.Kept && !wrote {
			continue
		}
		value, err := datum.ParseJSON(raw)
		if err != nil {
			return fmt.Errorf("shared state %s: %w", n.Name, err)
		}
		s.set(n.Name, value, raw)
		if wrote {
			s.noteWritten(n.Name)
		}
	}
	return nil
}
