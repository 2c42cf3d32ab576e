package dsl

import (
	"fmt"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// maxHandlers bounds the handlers of one pipeline: what each of them may read
// depends on all before it, so that the cost of a check grows with their square.
const maxHandlers = 1000

// merge gathers what the documents declare, in the order of the documents. A
// nil document is a file that could not be read.
func (c *checker) merge(docs []*tree.Document) {
	for _, d := range docs {
		if d == nil {
			c.partial = true
			continue
		}
		c.mergeDocument(d)
	}
	for _, p := range c.bundle.Pipelines {
		c.checkPlaced(p)
		c.mergeStages(p)
	}
	for _, d := range docs {
		if d == nil {
			continue
		}
		for _, h := range d.Handlers {
			c.mergeHandler(h)
		}
	}
	// Only now are all handlers in their stages.
	for _, p := range c.bundle.Pipelines {
		c.setPaths(p)
		for _, s := range p.Stages {
			s.MakeLoop(p)
		}
	}
}

// mergeDocument adds everything but the handlers, whose stages may be in a
// later document.
func (c *checker) mergeDocument(d *tree.Document) {
	b := c.bundle
	for _, s := range d.Services {
		if c.declare("service", s.ID, s.PlaceOf("id", s.Span)) {
			b.Index.Services[s.ID] = s
		}
		b.Services = append(b.Services, s)
	}
	for i, k := range d.Configs.Keys() {
		if c.declare("config", k.Name, k.Span) {
			c.configs = append(c.configs, k.Name)
			c.configValues[k.Name] = d.Configs.Elems[i]
		}
		value, _ := d.Configs.Elems[i].Literal()
		b.Configs = append(b.Configs, &tree.Config{Span: k.Span, Name: k.Name, Value: value})
	}
	for i, k := range d.Schemas.Keys() {
		if c.declare("schema", k.Name, k.Span) {
			c.schemas[k.Name] = d.Schemas.Elems[i]
		}
	}
	for i, k := range d.ConfigSchemas.Keys() {
		if c.declare("schema of config", k.Name, k.Span) {
			c.configSchemas = append(c.configSchemas, entry{k, d.ConfigSchemas.Elems[i]})
		}
	}
	for _, e := range d.Events {
		if c.declare("event", e.Type, e.PlaceOf("type", e.Span)) {
			b.Index.Events[e.Type] = e
		}
		b.Events = append(b.Events, e)
	}
	for _, f := range d.Flows {
		if c.declare("flow", f.ID, f.PlaceOf("id", f.Span)) {
			b.Index.Flows[f.ID] = f
		}
		b.Flows = append(b.Flows, f)
	}
	for _, p := range d.Pipelines {
		for _, s := range p.Stages {
			s.JoinBranches()
		}
		if c.declare("pipeline", p.ID, p.PlaceOf("id", p.Span)) {
			b.Index.Pipelines[p.ID] = p
		}
		b.Pipelines = append(b.Pipelines, p)
	}
	for _, t := range d.Templates {
		if c.declare("template", t.ID, t.PlaceOf("id", t.Span)) {
			c.templates[t.ID] = t
		}
		b.Templates = append(b.Templates, t)
	}
	for _, t := range d.Triggers {
		c.declare("trigger", t.ID, t.PlaceOf("id", t.Span))
		b.Triggers = append(b.Triggers, t)
	}
	for _, m := range d.ShardMaps {
		c.declare("shard map", m.ID, m.PlaceOf("id", m.Span))
		b.ShardMaps = append(b.ShardMaps, m)
	}
	for _, cluster := range d.Clusters {
		if c.declare("cluster", cluster.ID, cluster.PlaceOf("id", cluster.Span)) {
			b.Index.Clusters[cluster.ID] = cluster
		}
		b.Clusters = append(b.Clusters, cluster)
	}
}

// declare notes a name and reports it when it is taken. It tells whether the
// name is new. An empty name was reported when it was read.
func (c *checker) declare(kind, name string, at diag.Span) bool {
	if name == "" {
		return false
	}
	key := kind + " " + name
	if first, taken := c.first[key]; taken {
		c.Report(diag.Diagnostic{
			Span: at, Code: rules.Duplicate,
			Message: fmt.Sprintf("%s %q is declared twice", kind, name),
			Hint:    "rename one of them",
			Related: []diag.Related{{Span: first, Message: "declared here first"}},
		})
		return false
	}
	c.first[key] = at
	return true
}

// mergeStages makes the stages of a pipeline known. Two of the same id are
// bearable while the paths of their handlers differ.
func (c *checker) mergeStages(p *tree.Pipeline) {
	if c.bundle.Index.Pipelines[p.ID] != p {
		return // reported as a duplicate; its stages would only repeat that
	}
	for _, s := range p.Stages {
		if s.ID == "" {
			continue
		}
		path := p.ID + "/" + s.ID
		if twins := c.stages[path]; len(twins) > 0 {
			c.Report(diag.Diagnostic{
				Span: s.PlaceOf("id", s.Span), Severity: diag.Warning, Code: rules.DuplicateStage,
				Message: fmt.Sprintf("pipeline %q has two stages %q", p.ID, s.ID),
				Hint:    "rename one: switches, limits and metrics of " + path + " mean both",
				Related: []diag.Related{{Span: twins[0].PlaceOf("id", twins[0].Span), Message: "the first one"}},
			})
		}
		c.stages[path] = append(c.stages[path], s)
	}
}

// checkPlaced reports handlers of a stage that name another place.
func (c *checker) checkPlaced(p *tree.Pipeline) {
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			if h.Into != "" {
				c.Errorf(h.PlaceOf("into", h.Span), rules.Into, "delete it, or move the handler to handlers: at the top level",
					"handler %q is in a stage already", h.ID)
			}
		}
	}
}

// mergeHandler adds a handler of the top level to its stage, behind those that stand in it.
func (c *checker) mergeHandler(h *tree.Handler) {
	if h.Into == "" {
		c.bundle.Detached = append(c.bundle.Detached, h)
		c.Warnf(h.PlaceOf("id", h.Span), rules.Detached, "say into: pipeline/stage",
			"handler %q belongs to no stage and never runs", h.ID)
		return
	}
	at := h.PlaceOf("into", h.Span)
	if h.Critical == nil {
		c.Errorf(h.PlaceOf("id", h.Span), rules.CriticalUnsaid,
			"say critical: false, so that the run goes on without it, or critical: true",
			"contribution %q does not say whether it is critical", h.ID)
	}
	switch stages := c.stages[h.Into]; len(stages) {
	case 1:
		stages[0].Handlers = append(stages[0].Handlers, h)
	case 0:
		c.reportInto(h, at)
	default:
		c.Report(diag.Diagnostic{
			Span: at, Code: rules.Into,
			Message: fmt.Sprintf("%q names %d stages", h.Into, len(stages)),
			Hint:    "give the stages ids of their own",
			Related: []diag.Related{
				{Span: stages[0].PlaceOf("id", stages[0].Span), Message: "one of them"},
				{Span: stages[1].PlaceOf("id", stages[1].Span), Message: "another one"},
			},
		})
	}
}

// reportInto says which part of a contribution's target does not exist.
func (c *checker) reportInto(h *tree.Handler, at diag.Span) {
	pipeline, stage, ok := strings.Cut(h.Into, "/")
	if !ok || pipeline == "" || stage == "" || strings.Contains(stage, "/") {
		c.Errorf(at, rules.Into, "write into: pipeline/stage", "want the path of a stage, have %q", h.Into)
		return
	}
	p := c.bundle.Index.Pipelines[pipeline]
	if p == nil {
		if !c.partial {
			c.Errorf(at, rules.Into, c.SuggestOr(pipeline, diag.NamesIn(c.bundle.Index.Pipelines), "the file that declares it was not given; "+
				"if it is another team's, name its directory as well: procaas validate . ../their-directory"), "unknown pipeline %q", pipeline)
		}
		return
	}
	known := func() []string {
		var ids []string
		for _, s := range p.Stages {
			ids = append(ids, s.ID)
		}
		return ids
	}
	c.Errorf(at, rules.Into, c.DidYouMean(stage, known), "pipeline %q has no stage %q", pipeline, stage)
}

// setPaths gives the handlers of a pipeline their paths, which must differ.
func (c *checker) setPaths(p *tree.Pipeline) {
	first := make(map[string]*tree.Handler)
	count := 0
	for _, s := range p.Stages {
		count += len(s.Handlers)
		for _, h := range s.Handlers {
			if p.ID == "" || s.ID == "" || h.ID == "" {
				continue
			}
			h.Place(p.ID + "/" + s.ID + "/" + h.ID)
			if twin := first[h.Path]; twin != nil {
				c.Report(diag.Diagnostic{
					Span: h.PlaceOf("id", h.Span), Code: rules.Duplicate,
					Message: fmt.Sprintf("handler %q is declared twice", h.Path),
					Hint:    "rename one of them",
					Related: []diag.Related{{Span: twin.PlaceOf("id", twin.Span), Message: "declared here first"}},
				})
				continue
			}
			first[h.Path] = h
			if c.bundle.Index.Pipelines[p.ID] == p {
				c.bundle.Index.Handlers[h.Path] = h
				if undo := h.Compensation(); undo != nil {
					c.bundle.Index.Handlers[undo.Path] = undo
				}
			}
		}
	}
	if count > maxHandlers {
		c.Errorf(p.PlaceOf("id", p.Span), rules.TooMany, "split it: one pipeline can emit the event of the next",
			"pipeline %q has %d handlers, want at most %d", p.ID, count, maxHandlers)
	}
}
