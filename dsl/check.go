package dsl

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// A checker merges documents into a bundle and finds what is wrong with the
// whole.
type checker struct {
	*Reporter
	bundle  *Bundle
	types   map[string]Type
	configs []string
	files   map[string]*reading // by name
	schemas map[string]*Value   // by name

	templates map[string]*Template
	ready     *contracts

	parsed *parses // expressions, by their text

	configKnown map[string]*outline // what is known of configs

	configSchemas []entry
	configValues  map[string]*Value    // first values by name
	first         map[string]Span      // where a name was declared first, under "kind name"
	stages        map[string][]*Stage  // by pipeline/stage
	takers        map[string]*Pipeline // by event type: the first that serves every event

	// unread holds what was found while reading: where it is, a part of the tree
	// is missing.
	unread []Diagnostic

	// partial says that a file could not be read: what is missing may be
	// declared there, so nobody is blamed for naming it.
	partial bool
}

func newChecker(files []File, types []Type, r *Reporter) *checker {
	c := &checker{
		Reporter: r,
		unread:   slices.Clone(r.found),
		types:    make(map[string]Type, len(types)),
		first:    make(map[string]Span),
		stages:   make(map[string][]*Stage),
		takers:   make(map[string]*Pipeline),
		schemas:  make(map[string]*Value),

		templates: make(map[string]*Template),
		parsed:    new(parses),

		configValues: make(map[string]*Value),
		bundle: &Bundle{
			Files:     files,
			flows:     make(map[string]*Flow),
			events:    make(map[string]*EventType),
			pipelines: make(map[string]*Pipeline),
			services:  make(map[string]*Service),
			clusters:  make(map[string]*Cluster),
			byEvent:   make(map[string][]*Pipeline),
			awaiting:  make(map[string][]*Pipeline),
			handlers:  make(map[string]*Handler),
		},
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
	for _, cluster := range c.bundle.Clusters {
		c.checkCluster(cluster)
	}
	for _, f := range c.bundle.Flows {
		c.checkFlow(f)
	}
	pipelines := make([]*pipelineCheck, len(c.bundle.Pipelines))
	for level, left := 0, len(pipelines); left > 0; level++ {
		var now []int // pipelines that call only such as are checked
		for i, p := range c.bundle.Pipelines {
			if p.level == level {
				now = append(now, i)
			}
		}
		left -= len(now)
		inParallel(len(now), c.Reporter, func(i int, r *Reporter) {
			pipelines[now[i]] = c.checkPipeline(c.bundle.Pipelines[now[i]], r)
		})
	}
	inParallel(len(c.bundle.Detached), c.Reporter, func(i int, r *Reporter) {
		c.checkDetached(c.bundle.Detached[i], r)
	})
	c.checkParts()
	c.proveDegradation(pipelines)
	c.advise(pipelines)
}

// checkFlow checks what belongs to a flow itself. Its names are checked with
// those of each of its pipelines.
func (c *checker) checkFlow(f *Flow) {
	if f.Key != nil {
		var events []string
		for _, p := range c.pipelinesOf(f.ID) {
			events = append(events, p.On...)
		}
		compileValue(f.Key, &Field{Kind: StringKind}, &scope{parsed: c.parsed, roots: []string{"event"}, payload: c.payloadOf(events)}, c.Reporter)
	}
	if f.States != nil {
		c.checkAutomaton(f)
	}
}

// pipelinesOf lists the pipelines of a flow.
func (c *checker) pipelinesOf(flow string) []*Pipeline {
	var out []*Pipeline
	for _, p := range c.bundle.Pipelines {
		if p.Flow == flow {
			out = append(out, p)
		}
	}
	return out
}

// unknown reports the name of something that is not declared.
func (c *checker) unknown(at Span, code Code, kind, name string, known func() []string) {
	if !c.partial {
		c.Errorf(at, code, c.didYouMean(name, known), "unknown %s %q", kind, name)
	}
}

// blamed tells whether an error was found inside a span while it was read.
func (c *checker) blamed(at Span) bool {
	return slices.ContainsFunc(c.unread, func(d Diagnostic) bool {
		return d.Severity == Error && d.File == at.File && !d.Start.before(at.Start) && d.Start.before(at.End)
	})
}

// before tells whether p comes first in a file.
func (p Pos) before(q Pos) bool {
	return p.Line < q.Line || p.Line == q.Line && p.Column < q.Column
}

// maxHints bounds the suggestions among the findings of one reporter: each
// costs a look at every known name.
const maxHints = 100

// didYouMean is a hint for a mistyped name: the nearest known one, or the whole
// list when it is short.
func (r *Reporter) didYouMean(name string, known func() []string) string {
	list := ""
	if r.hints < maxHints {
		if names := known(); len(names) > 0 && len(names) <= 8 {
			list = "known: " + strings.Join(names, ", ")
		}
	}
	return r.suggestOr(name, known, list)
}

// suggestOr is a hint for a mistyped name, or another one when no known name is
// near.
func (r *Reporter) suggestOr(name string, known func() []string, other string) string {
	if r.hints++; r.hints > maxHints {
		return other
	}
	return cmp.Or(didYouMean(name, known(), `"`), other)
}

// firstValues gives the declared names of a shared state with their first
// values.
func firstValues(v *Value, into map[string]any) {
	for i, k := range v.Keys() {
		into[k.Name], _ = v.items[i].Literal()
	}
}

// hasKey finds the key of a mapping.
func hasKey(keys []Key, name string) (Key, bool) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

// in gives the keys of a map, when they are asked for.
func in[V any](m map[string]V) func() []string { return func() []string { return namesOf(m) } }

// namesOf lists the keys of a map in order.
func namesOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
