package flowtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// A checker checks what the tags of the structs cannot express, and what does not match the
// pipelines.
type checker struct {
	diag.Reporter
	suite *Suite
}

func (c *checker) file(f *File) {
	c.configs(f.Configs)
	c.mocks(f.Mocks)
	seen := map[string]diag.Span{}
	for _, t := range f.Tests {
		if first, twice := seen[t.Name]; twice {
			c.Report(diag.Diagnostic{
				Span: head(t.Span), Code: rules.TestPlace, Hint: "say what is different", Message: "a second test is called " + t.Name,
				Related: []diag.Related{{Span: head(first), Message: "the first one"}},
			})
		}
		seen[t.Name] = t.Span
		c.test(t)
	}
}

func (c *checker) test(t *Test) {
	c.configs(t.Configs)
	c.mocks(t.Mocks)
	c.controls(t.Controls)
	for _, e := range t.Entities {
		c.entity(e)
	}
	for _, e := range t.Events {
		c.event(e)
	}
	for _, change := range t.Changes {
		c.configs(change.Configs)
		c.controls(change.Controls)
	}
	if t.Expect == nil {
		return
	}
	c.expect(t.Expect, c.pipelinesOf(t.Events))
	c.about(t)
}

// about reports fields of expect that are about one run if there are more.
func (c *checker) about(t *Test) {
	e := t.Expect
	one := e.Status != "" || e.Pipeline != "" || e.Failed != "" || e.Error != "" || e.Reason != "" || e.SharedState != nil ||
		e.Outputs != nil || e.State != "" || e.Transitions != nil || e.Handlers != nil || e.Refused != ""
	if one && len(t.Events) > 1 {
		c.Errorf(head(e.Span), rules.TestPlace, "say it in expect of an event, below runs, or below entities",
			"the expect of a test with %d events cannot speak of the run", len(t.Events))
	}
	for _, pipeline := range sorted(e.Runs) {
		at := e.Runs[pipeline][0].Key.Span
		if c.suite.Bundle.Pipeline(pipeline) == nil {
			c.unknown(at, "pipeline", pipeline, c.pipelines())
			continue
		}
		for _, run := range e.Runs[pipeline] {
			c.expect(run, []string{pipeline})
			c.inner(run)
		}
	}
	for _, entity := range e.Entities {
		c.entityOf(entity.Span, entity.Flow, append([]string{entity.State}, entity.Transitions...), entity.SharedState)
	}
}

// inner reports fields that only the expect of a test may have.
func (c *checker) inner(e *Expect) {
	if e.Runs != nil || e.Entities != nil {
		c.Errorf(head(e.Span), rules.TestPlace, "say it in the expect of the test", "runs and entities are of a test, not of a run")
	}
}

// unknown reports an unknown name.
func (c *checker) unknown(at diag.Span, what, name string, known []string) {
	hint := ""
	if near := diag.Suggest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	} else if len(known) > 0 && len(known) <= 12 {
		hint = "there are " + strings.Join(known, ", ")
	}
	c.Errorf(at, rules.TestName, hint, "there is no %s %s", what, name)
}

// handler reports the name of a handler that no pipeline has.
func (c *checker) handler(at diag.Span, name string, pipelines ...string) (paths []string) {
	paths = c.suite.names.find(name, pipelines...)
	if len(paths) > 0 {
		return paths
	}
	hint := ""
	if near := c.suite.names.near(name, pipelines...); near != "" {
		hint = "did you mean " + near + "?"
	}
	where := ""
	if len(pipelines) == 1 {
		where = " in " + pipelines[0]
	}
	c.Errorf(at, rules.TestName, hint, "there is no handler %s%s", name, where)
	return nil
}

func (c *checker) pipelines() []string {
	var ids []string
	for _, p := range c.suite.Bundle.Pipelines {
		ids = append(ids, p.ID)
	}
	return ids
}

// pipelinesOf lists the pipelines that events may start.
func (c *checker) pipelinesOf(events []*Event) []string {
	var ids []string
	for _, e := range events {
		for _, p := range c.suite.Bundle.On(e.Type) {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (c *checker) configs(v *expr.Value) {
	var known []string
	for _, config := range c.suite.Bundle.Configs {
		known = append(known, config.Name)
	}
	for _, k := range v.Keys() {
		if !slices.Contains(known, k.Name) {
			c.unknown(k.Span, "config", k.Name, known)
		}
	}
}

func (c *checker) mocks(mocks map[string][]*Answer) {
	for _, name := range sorted(mocks) {
		answers := mocks[name]
		at := answers[0].Key.Span
		for _, path := range c.handler(at, name) {
			h := c.suite.Bundle.Handler(path)
			if h.Call != nil {
				c.mockOfCall(h, answers)
				continue
			}
			if h.Type == "" || h.Type == "set" {
				c.Errorf(at, rules.TestPlace, "leave it out", "%s makes no call that could be answered", path)
				break
			}
		}
		for _, a := range answers {
			if a.Error != "" && (a.Reply != nil || a.Headers != nil || a.Status != 200) {
				c.Errorf(head(a.Span), rules.TestPlace, "leave out one of them", "an answer is a reply or an error, this one is both")
			}
			c.body(name, a)
			for _, v := range []*expr.Value{a.When, a.Reply, a.Headers} {
				c.roots(v, "the answer of a mock", "request", "calls")
			}
		}
	}
}

// body warns of an answer without a body, with a status whose body no schema describes: that of a real service often is
// text.
func (c *checker) body(name string, a *Answer) {
	if a.Error != "" || !a.Reply.IsNull() {
		return
	}
	for _, path := range c.suite.names.find(name) {
		if c.suite.Bundle.Handler(path).Undescribes(a.Status) {
			c.Warnf(head(a.Span), rules.TestPlace, "write the body that the service sends, such as reply: not found",
				"no schema describes the body of a %d from %s, and this answer has none: a real one may be text", a.Status, path)
		}
	}
}

// roots reports expressions that read unknown roots.
func (c *checker) roots(v *expr.Value, place string, known ...string) {
	for _, r := range v.Reads() {
		if !slices.Contains(known, r.Path[0]) {
			c.Errorf(r.Span, rules.TestPlace, "known here: "+strings.Join(known, ", "), "%s cannot read %s", place, r.Path[0])
		}
	}
}

func (c *checker) controls(controls map[string]*Control) {
	known := map[string]bool{}
	for _, path := range c.suite.names.paths {
		parts := strings.Split(path, "/")
		known[parts[0]], known[parts[0]+"/"+parts[1]], known[path] = true, true, true
	}
	for _, path := range sorted(controls) {
		if known[path] || len(c.suite.names.find(path)) == 1 {
			continue
		}
		c.unknown(controls[path].Key.Span, "pipeline, stage or handler", path, slices.Sorted(maps.Keys(known)))
	}
}

func (c *checker) event(e *Event) {
	if e.Trigger != "" && !c.trigger(e) {
		return
	}
	if e.Type == "" {
		c.Errorf(head(e.Span), rules.TestPlace, "write type: order-created, or trigger: nightly", "an event needs a type")
		return
	}
	if len(c.suite.Bundle.On(e.Type)) == 0 && len(c.suite.Bundle.Awaiting(e.Type)) == 0 && (e.Expect == nil || e.Expect.Refused == "") {
		var known []string
		for _, p := range c.suite.Bundle.Pipelines {
			known = append(known, p.On...)
		}
		slices.Sort(known)
		c.unknown(e.PlaceOf("type", head(e.Span)), "pipeline for events of the type", e.Type, slices.Compact(known))
		return
	}
	if e.Expect != nil {
		c.expect(e.Expect, c.pipelinesOf([]*Event{e}))
		c.inner(e.Expect)
	}
}

// trigger sets the type of an event from its trigger, and reports whether it could.
func (c *checker) trigger(e *Event) bool {
	i := slices.IndexFunc(c.suite.Bundle.Triggers, func(t *tree.Trigger) bool { return t.ID == e.Trigger })
	if i < 0 {
		var known []string
		for _, t := range c.suite.Bundle.Triggers {
			known = append(known, t.ID)
		}
		c.unknown(e.PlaceOf("trigger", head(e.Span)), "trigger", e.Trigger, known)
		return false
	}
	if e.Type != "" || e.Key != "" || e.ID != "" || e.Payload != nil || e.Delay != 0 || e.Priority != 0 {
		c.Errorf(head(e.Span), rules.TestPlace, "leave out all but at and expect", "an event of a trigger is as the trigger %s says", e.Trigger)
		return false
	}
	e.Type, e.fires = c.suite.Bundle.Triggers[i].Event, c.suite.Bundle.Triggers[i]
	return true
}

func (c *checker) entity(e *Entity) { c.entityOf(e.Span, e.Flow, []string{e.State}, e.SharedState) }

// entityOf checks the description of an entity.
func (c *checker) entityOf(at diag.Span, id string, states []string, shared *expr.Value) {
	f := c.suite.flow(id)
	if f == nil {
		var known []string
		for _, f := range c.suite.Bundle.Flows {
			known = append(known, f.ID)
		}
		if id == "" {
			c.Errorf(head(at), rules.TestPlace, "add flow:, one of "+strings.Join(known, ", "), "the entity must say its flow: there are %d",
				len(known))
			return
		}
		c.unknown(head(at), "flow", id, known)
		return
	}
	c.states(f, states, func(int) diag.Span { return head(at) })
	var known []string
	for _, k := range f.SharedState.Keys() {
		known = append(known, k.Name)
	}
	for _, k := range shared.Keys() {
		if !slices.Contains(known, k.Name) {
			c.unknown(k.Span, "name that flow "+f.ID+" keeps,", k.Name, known)
		}
	}
}

// states checks the names of states of a flow.
func (c *checker) states(f *tree.Flow, states []string, at func(i int) diag.Span) {
	var known []string
	if f.States != nil {
		known = append(known, f.States.Initial)
		known = append(known, f.States.Final...)
		for _, t := range f.States.Transitions {
			known = append(append(known, t.From...), t.To)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for i, state := range states {
		if state != "" && !slices.Contains(known, state) {
			c.unknown(at(i), "state of "+f.ID, state, known)
		}
	}
}

// expect checks the expectations about runs of these pipelines, or of all if there are none.
func (c *checker) expect(e *Expect, pipelines []string) {
	if e.Pipeline != "" && c.suite.Bundle.Pipeline(e.Pipeline) == nil {
		c.unknown(e.at("pipeline"), "pipeline", e.Pipeline, c.pipelines())
	}
	if e.Failed != "" {
		c.handler(e.at("failed"), e.Failed, pipelines...)
	}
	for _, name := range sorted(e.Handlers) {
		h := e.Handlers[name]
		if paths := c.handler(h.Key.Span, name, pipelines...); len(paths) > 1 && len(pipelines) == 1 {
			c.Errorf(h.Key.Span, rules.TestName, "write one of "+strings.Join(paths, ", "), "%d handlers are called %s", len(paths), name)
		}
	}
	for _, call := range e.Calls {
		c.handler(call.PlaceOf("handler", head(call.Span)), call.Handler)
		for _, v := range []*expr.Value{call.Query, call.Headers, call.Body, call.Fields} {
			c.roots(v, "what is expected", "value")
		}
	}
	for i, name := range e.Order {
		c.handler(e.PlaceOf(fmt.Sprintf("order[%d]", i), head(e.Span)), name)
	}
	for _, emit := range e.Emits {
		c.roots(emit.Payload, "what is expected", "value")
	}
	c.roots(e.SharedState, "what is expected", "value")
	c.roots(e.Outputs, "what is expected", "value")
	for _, pipeline := range pipelines {
		p := c.suite.Bundle.Pipeline(pipeline)
		if f := c.suite.Bundle.Flow(p.Flow); f != nil {
			c.states(f, []string{e.State}, func(int) diag.Span { return e.at("state") })
			c.states(f, e.Transitions, func(i int) diag.Span { return e.PlaceOf(fmt.Sprintf("transitions[%d]", i), head(e.Span)) })
		} else if e.State != "" || e.Transitions != nil {
			c.Errorf(head(e.Span), rules.TestPlace, "", "pipeline %s has no flow, and so its runs no state", pipeline)
		}
	}
	for _, name := range sorted(e.WhenOff) {
		c.whenOff(name, e.WhenOff[name], pipelines)
	}
}

// whenOff checks the expectations for a left out handler.
func (c *checker) whenOff(name string, e *Expect, pipelines []string) {
	paths := c.handler(e.Key.Span, name)
	critical := slices.ContainsFunc(paths, func(path string) bool { return !c.suite.Bundle.Handler(path).IsCritical() })
	if len(paths) > 0 && !critical {
		c.Errorf(e.Key.Span, rules.TestPlace, "leave it out", "%s is critical, so it is never left out", cmp.Or(paths[0], name))
	}
	if e.WhenOff != nil {
		c.Errorf(head(e.Span), rules.TestPlace, "", "when-off cannot stand inside of when-off")
		return
	}
	c.expect(e, pipelines)
}
