package dsl

import (
	"procaas/dsl/cluster"
	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/shards"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// A checker finds what is wrong with the whole.
type checker struct {
	*diag.Reporter
	*merge.Whole

	ready       *contracts.Set
	configKnown map[string]*typing.Outline // what is known of configs
	takers      map[string]*tree.Pipeline  // by event type: the first that serves every event
}

// check finds what is wrong with the merged bundle. Pipelines are checked in
// parallel: they only read what is shared.
func (c *checker) check() {
	c.checkEvents()
	c.checkAwaits()
	c.checkContracts()
	c.configKnown = c.configOutlines()
	c.checkCalls()
	for _, s := range c.Bundle.Services {
		c.checkService(s)
	}
	for _, t := range c.Bundle.Triggers {
		c.checkTrigger(t)
	}
	for _, m := range c.Bundle.ShardMaps {
		shards.Check(m, c.Whole, c.Reporter)
	}
	for _, declared := range c.Bundle.Clusters {
		cluster.Check(declared, c.Files, c.Reporter)
	}
	for _, f := range c.Bundle.Flows {
		c.checkFlow(f)
	}
	pipelines := make([]*pipelineCheck, len(c.Bundle.Pipelines))
	for level, left := 0, len(pipelines); left > 0; level++ {
		var now []int // pipelines that call only such as are checked
		for i, p := range c.Bundle.Pipelines {
			if p.Level == level {
				now = append(now, i)
			}
		}
		left -= len(now)
		diag.InParallel(len(now), c.Reporter, func(i int, r *diag.Reporter) {
			pipelines[now[i]] = c.checkPipeline(c.Bundle.Pipelines[now[i]], r)
		})
	}
	diag.InParallel(len(c.Bundle.Detached), c.Reporter, func(i int, r *diag.Reporter) {
		c.checkDetached(c.Bundle.Detached[i], r)
	})
	c.checkParts()
	c.checkEndless()
	c.proveDegradation(pipelines)
	c.advise(pipelines)
}

// checkFlow checks what belongs to a flow itself. Its names are checked with
// those of each of its pipelines.
func (c *checker) checkFlow(f *tree.Flow) {
	if f.Key != nil {
		var events []string
		for _, p := range c.pipelinesOf(f.ID) {
			events = append(events, p.On...)
		}
		spec.Compile(f.Key, &spec.Field{Kind: datum.StringKind}, &expr.Scope{
			Parsed: c.Parsed, Roots: []string{"event"},
			Payload: c.payloadOf(events),
		}, c.Reporter)
	}
	if f.States != nil {
		c.checkAutomaton(f)
	}
}

// pipelinesOf lists the pipelines of a flow.
func (c *checker) pipelinesOf(flow string) []*tree.Pipeline {
	var out []*tree.Pipeline
	for _, p := range c.Bundle.Pipelines {
		if p.Flow == flow {
			out = append(out, p)
		}
	}
	return out
}

// unknown reports the name of something that is not declared.
func (c *checker) unknown(at diag.Span, code diag.Code, kind, name string, known func() []string) {
	if !c.Partial {
		c.Errorf(at, code, c.DidYouMean(name, known), "unknown %s %q", kind, name)
	}
}

// firstValues gives the declared names of a shared state with their first
// values.
func firstValues(v *expr.Value, into map[string]any) {
	for i, k := range v.Keys() {
		into[k.Name], _ = v.Elems[i].Literal()
	}
}
