package merge

import (
	"fmt"
	"strings"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// MaxHandlers is the maximum number of handlers of one pipeline. The cost of a check grows with their square,
// since each may read from all before it.
const MaxHandlers = 1000

// A merger combines documents into a whole.
type merger struct {
	*Whole
	*diag.Reporter

	stages map[string][]*tree.Stage // by pipeline/stage
}

// Documents combines the documents of a set, in their order.
func Documents(set *decode.Set, types []tree.Type, r *diag.Reporter) *Whole {
	m := &merger{newWhole(set, types), r, make(map[string][]*tree.Stage)}
	for _, d := range set.Documents {
		if d == nil {
			m.Partial = true
			continue
		}
		m.document(d)
	}
	for _, p := range m.Bundle.Pipelines {
		m.checkPlaced(p)
		m.noteStages(p)
	}
	for _, d := range set.Documents {
		if d == nil {
			continue
		}
		for _, h := range d.Handlers {
			m.handler(h)
		}
	}
	// All handlers are in their stages now.
	for _, p := range m.Bundle.Pipelines {
		m.setPaths(p)
		for _, s := range p.Stages {
			s.MakeLoop(p)
		}
		m.checkContributions(p)
	}
	m.checkFlowWriters()
	return m.Whole
}

// document adds everything except handlers, whose stages may be in a later document.
func (m *merger) document(d *tree.Document) {
	d.OwnAll()
	b := m.Bundle
	for _, s := range d.Services {
		if m.Declare("service", s.ID, s.PlaceOf("id", s.Span), m.Reporter) {
			b.Index.Services[s.ID] = s
		}
		b.Services = append(b.Services, s)
	}
	for i, k := range d.Configs.Keys() {
		if m.Declare("config", k.Name, k.Span, m.Reporter) {
			m.Configs = append(m.Configs, k.Name)
			m.ConfigValues[k.Name] = d.Configs.Elems[i]
		}
		value, _ := d.Configs.Elems[i].Literal()
		b.Configs = append(b.Configs, &tree.Config{Span: k.Span, Name: k.Name, Value: value})
	}
	for i, k := range d.Schemas.Keys() {
		if m.Declare("schema", k.Name, k.Span, m.Reporter) {
			m.Schemas[k.Name] = d.Schemas.Elems[i]
		}
	}
	for i, k := range d.ConfigSchemas.Keys() {
		if m.Declare("schema of config", k.Name, k.Span, m.Reporter) {
			m.ConfigSchemas = append(m.ConfigSchemas, Entry{k, d.ConfigSchemas.Elems[i]})
		}
	}
	for _, e := range d.Events {
		if m.Declare("event", e.Type, e.PlaceOf("type", e.Span), m.Reporter) {
			b.Index.Events[e.Type] = e
		}
		b.Events = append(b.Events, e)
	}
	for _, f := range d.Flows {
		m.senders(f.Notify, f.ID, f.Owner)
		if m.Declare("flow", f.ID, f.PlaceOf("id", f.Span), m.Reporter) {
			b.Index.Flows[f.ID] = f
		}
		b.Flows = append(b.Flows, f)
	}
	for _, p := range d.Pipelines {
		for _, s := range p.Stages {
			s.JoinBranches()
		}
		if m.Declare("pipeline", p.ID, p.PlaceOf("id", p.Span), m.Reporter) {
			b.Index.Pipelines[p.ID] = p
		}
		b.Pipelines = append(b.Pipelines, p)
		m.senders(p.Notify, p.ID, p.Owner)
	}
	for _, t := range d.Templates {
		if m.Declare("template", t.ID, t.PlaceOf("id", t.Span), m.Reporter) {
			m.Templates[t.ID] = t
		}
		b.Templates = append(b.Templates, t)
	}
	for _, t := range d.Triggers {
		m.Declare("trigger", t.ID, t.PlaceOf("id", t.Span), m.Reporter)
		b.Triggers = append(b.Triggers, t)
	}
	d.EachDeclaration(func(x tree.Declaration) { m.Declare(x.Kind, x.ID, x.At, m.Reporter) })
	b.Join(d)
}

// senders adds the pipelines that send the notifications of a pipeline or flow.
func (m *merger) senders(all []*tree.Notification, of, owner string) {
	for _, n := range all {
		if of == "" || n.ID == "" || n.Service == "" || n.Path == "" {
			continue // already reported
		}
		n.AddSender(of, owner)
		p := n.Sender()
		if m.Declare("pipeline", p.ID, n.PlaceOf("id", n.Span), m.Reporter) {
			m.Bundle.Index.Pipelines[p.ID] = p
		}
		m.Bundle.Pipelines = append(m.Bundle.Pipelines, p)
	}
}

// noteStages records the stages of a pipeline. Two stages may have the same id if the paths of their handlers
// differ.
func (m *merger) noteStages(p *tree.Pipeline) {
	if m.Bundle.Index.Pipelines[p.ID] != p || p.Sends != nil {
		return // already reported as a duplicate, or nobody may add handlers
	}
	for _, s := range p.Stages {
		if s.ID == "" {
			continue
		}
		path := p.ID + "/" + s.ID
		twins := m.stages[path]
		switch {
		case len(twins) == 0:
		case s.Final:
			m.Report(diag.Diagnostic{
				Span: twins[0].PlaceOf("id", twins[0].Span), Code: rules.Finally, Hint: "rename the stage",
				Message: `stage "finally" has the name of the handlers that run at the end`,
				Related: []diag.Related{{Span: s.Span.Head(), Message: "these"}},
			})
		default:
			m.Report(diag.Diagnostic{
				Span: s.PlaceOf("id", s.Span), Severity: diag.Warning, Code: rules.DuplicateStage,
				Message: fmt.Sprintf("pipeline %q has two stages %q", p.ID, s.ID),
				Hint:    "rename one: switches, limits and metrics of " + path + " mean both",
				Related: []diag.Related{{Span: twins[0].PlaceOf("id", twins[0].Span), Message: "the first one"}},
			})
		}
		m.stages[path] = append(m.stages[path], s)
	}
}

// checkPlaced reports handlers of a stage with an into.
func (m *merger) checkPlaced(p *tree.Pipeline) {
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			if h.Into != "" {
				m.Errorf(h.PlaceOf("into", h.Span), rules.Into, "delete it, or move the handler to handlers: at the top level",
					"handler %q is in a stage already", h.ID)
			}
		}
	}
}

// handler adds a top-level handler to its stage, after the handlers there.
func (m *merger) handler(h *tree.Handler) {
	if h.Into == "" {
		m.Bundle.Detached = append(m.Bundle.Detached, h)
		m.Warnf(h.PlaceOf("id", h.Span), rules.Detached, "write into: pipeline/stage",
			"handler %q belongs to no stage and never runs", h.ID)
		return
	}
	at := h.PlaceOf("into", h.Span)
	if h.Critical == nil {
		m.Errorf(h.PlaceOf("id", h.Span), rules.CriticalUnsaid,
			"write critical: false, so that the run continues without it, or critical: true",
			"contribution %q does not say whether it is critical", h.ID)
	}
	switch stages := m.stages[h.Into]; len(stages) {
	case 1:
		stages[0].Handlers = append(stages[0].Handlers, h)
		m.join(h, stages[0])
	case 0:
		m.reportInto(h, at)
	default:
		m.Report(diag.Diagnostic{
			Span: at, Code: rules.Into,
			Message: fmt.Sprintf("%q names %d stages", h.Into, len(stages)),
			Hint:    "use another id for each stage",
			Related: []diag.Related{
				{Span: stages[0].PlaceOf("id", stages[0].Span), Message: "one of them"},
				{Span: stages[1].PlaceOf("id", stages[1].Span), Message: "another one"},
			},
		})
	}
}

// reportInto reports which part of a contribution's target does not exist.
func (m *merger) reportInto(h *tree.Handler, at diag.Span) {
	pipeline, stage, ok := strings.Cut(h.Into, "/")
	if !ok || pipeline == "" || stage == "" || strings.Contains(stage, "/") {
		m.Errorf(at, rules.Into, "write into: pipeline/stage", "want the path of a stage, have %q", h.Into)
		return
	}
	p := m.Bundle.Index.Pipelines[pipeline]
	if p == nil {
		if !m.Partial {
			m.Errorf(at, rules.Into, m.SuggestOr(pipeline, diag.NamesIn(m.Bundle.Index.Pipelines), "the file that declares it was not given; "+
				"if it is another team's, name its directory as well: procaas validate . ../their-directory, "+
				"or pipelines: [., ../their-directory] in a test file"), "unknown pipeline %q", pipeline)
		}
		return
	}
	m.Errorf(at, rules.Into, m.DidYouMean(stage, p.StageIDs), "pipeline %q has no stage %q", pipeline, stage)
}

// setPaths sets the paths of a pipeline's handlers and reports duplicates.
func (m *merger) setPaths(p *tree.Pipeline) {
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
				m.Report(diag.Diagnostic{
					Span: h.PlaceOf("id", h.Span), Code: rules.Duplicate,
					Message: fmt.Sprintf("handler %q is declared twice", h.Path),
					Hint:    "rename one of them",
					Related: []diag.Related{{Span: twin.PlaceOf("id", twin.Span), Message: "declared here first"}},
				})
				continue
			}
			first[h.Path] = h
			if m.Bundle.Index.Pipelines[p.ID] == p {
				m.Bundle.Index.Handlers[h.Path] = h
				if undo := h.Compensation(); undo != nil {
					m.Bundle.Index.Handlers[undo.Path] = undo
				}
			}
		}
	}
	if count > MaxHandlers {
		m.Errorf(p.PlaceOf("id", p.Span), rules.TooMany, "split it: one pipeline can emit the event of the next",
			"pipeline %q has %d handlers, want at most %d", p.ID, count, MaxHandlers)
	}
}
