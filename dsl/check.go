package dsl

import (
	"slices"

	"procaas/dsl/cluster"
	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/syntax"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// A checker merges documents into a bundle and finds what is wrong with the
// whole.
type checker struct {
	*diag.Reporter
	bundle  *tree.Bundle
	types   map[string]tree.Type
	configs []string
	files   map[string]*contracts.File // by name
	schemas map[string]*expr.Value     // by name

	templates map[string]*tree.Template
	ready     *contracts.Set

	parsed *syntax.Cache // expressions, by their text

	configKnown map[string]*typing.Outline // what is known of configs

	configSchemas []entry
	configValues  map[string]*expr.Value    // first values by name
	first         map[string]diag.Span      // where a name was declared first, under "kind name"
	stages        map[string][]*tree.Stage  // by pipeline/stage
	takers        map[string]*tree.Pipeline // by event type: the first that serves every event

	// unread holds what was found while reading: where it is, a part of the tree
	// is missing.
	unread []diag.Diagnostic

	// partial says that a file could not be read: what is missing may be
	// declared there, so nobody is blamed for naming it.
	partial bool
}

func newChecker(files []diag.File, types []tree.Type, r *diag.Reporter) *checker {
	c := &checker{
		Reporter: r,
		unread:   slices.Clone(r.Found),
		types:    make(map[string]tree.Type, len(types)),
		first:    make(map[string]diag.Span),
		stages:   make(map[string][]*tree.Stage),
		takers:   make(map[string]*tree.Pipeline),
		schemas:  make(map[string]*expr.Value),

		templates: make(map[string]*tree.Template),
		parsed:    new(syntax.Cache),

		configValues: make(map[string]*expr.Value),
		bundle:       &tree.Bundle{Files: files, Index: tree.NewIndex()},
	}
	for _, t := range types {
		c.types[t.Name] = t
	}
	return c
}

// check finds what is wrong with the merged bundle. Pipelines are checked in
// parallel: they only read what is shared.
func (c *checker) check() {
	c.checkEvents()
	c.checkAwaits()
	c.checkContracts()
	c.configKnown = c.configOutlines()
	c.checkCalls()
	for _, s := range c.bundle.Services {
		c.checkService(s)
	}
	for _, t := range c.bundle.Triggers {
		c.checkTrigger(t)
	}
	for _, m := range c.bundle.ShardMaps {
		c.checkShardMap(m)
	}
	for _, declared := range c.bundle.Clusters {
		cluster.Check(declared, c.files, c.Reporter)
	}
	for _, f := range c.bundle.Flows {
		c.checkFlow(f)
	}
	pipelines := make([]*pipelineCheck, len(c.bundle.Pipelines))
	for level, left := 0, len(pipelines); left > 0; level++ {
		var now []int // pipelines that call only such as are checked
		for i, p := range c.bundle.Pipelines {
			if p.Level == level {
				now = append(now, i)
			}
		}
		left -= len(now)
		diag.InParallel(len(now), c.Reporter, func(i int, r *diag.Reporter) {
			pipelines[now[i]] = c.checkPipeline(c.bundle.Pipelines[now[i]], r)
		})
	}
	diag.InParallel(len(c.bundle.Detached), c.Reporter, func(i int, r *diag.Reporter) {
		c.checkDetached(c.bundle.Detached[i], r)
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
			Parsed: c.parsed, Roots: []string{"event"},
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
	for _, p := range c.bundle.Pipelines {
		if p.Flow == flow {
			out = append(out, p)
		}
	}
	return out
}

// unknown reports the name of something that is not declared.
func (c *checker) unknown(at diag.Span, code diag.Code, kind, name string, known func() []string) {
	if !c.partial {
		c.Errorf(at, code, c.DidYouMean(name, known), "unknown %s %q", kind, name)
	}
}

// blamed tells whether an error was found inside a span while it was read.
func (c *checker) blamed(at diag.Span) bool {
	return slices.ContainsFunc(c.unread, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && d.File == at.File && !d.Start.Before(at.Start) && d.Start.Before(at.End)
	})
}

// firstValues gives the declared names of a shared state with their first
// values.
func firstValues(v *expr.Value, into map[string]any) {
	for i, k := range v.Keys() {
		into[k.Name], _ = v.Elems[i].Literal()
	}
}

// hasKey finds the key of a mapping.
func hasKey(keys []expr.Key, name string) (expr.Key, bool) {
	i := slices.IndexFunc(keys, func(k expr.Key) bool { return k.Name == name })
	if i < 0 {
		return expr.Key{}, false
	}
	return keys[i], true
}
