package tree

import (
	"maps"
	"slices"

	"procaas/dsl/expr"
)

// ReplaceCalls returns a bundle in which the handlers with these paths have the type typ instead of a call of a
// pipeline. Their body has the arguments of that call. Everything else is shared with the bundle, which does
// not change. Tests use this to mock a call as a whole.
func (b *Bundle) ReplaceCalls(typ string, paths map[string]bool) *Bundle {
	out := *b
	out.Index.Handlers = maps.Clone(b.Index.Handlers)
	out.Index.Pipelines = maps.Clone(b.Index.Pipelines)
	out.Pipelines = slices.Clone(b.Pipelines)
	was := map[*Pipeline]*Pipeline{}
	for i, p := range b.Pipelines {
		if now := p.replaceCalls(typ, paths, out.Index.Handlers); now != p {
			out.Pipelines[i], out.Index.Pipelines[p.ID], was[p] = now, now, now
		}
	}
	replace := func(all map[string][]*Pipeline) map[string][]*Pipeline {
		all = maps.Clone(all)
		for event, pipelines := range all {
			pipelines = slices.Clone(pipelines)
			for i, p := range pipelines {
				if was[p] != nil {
					pipelines[i] = was[p]
				}
			}
			all[event] = pipelines
		}
		return all
	}
	out.Index.Serving, out.Index.Awaiting = replace(b.Index.Serving), replace(b.Index.Awaiting)
	return &out
}

// replaceCalls is [Bundle.ReplaceCalls] for one pipeline. It returns p if p makes none of the calls.
func (p *Pipeline) replaceCalls(typ string, paths map[string]bool, handlers map[string]*Handler) *Pipeline {
	out := *p
	out.Stages = slices.Clone(p.Stages)
	changed := false
	for i, s := range p.Stages {
		stage := *s
		stage.Handlers = slices.Clone(s.Handlers)
		here := false
		for j, h := range s.Handlers {
			if h.Call == nil || !paths[h.Path] {
				continue
			}
			mock := *h
			mock.Type, mock.Body, mock.Call = typ, h.Call.With, nil
			mock.Expected = nil // it is for the outputs, not for replies of a service
			if mock.Body == nil {
				mock.Body = &expr.Value{Span: h.Call.Span, Kind: expr.ValueMap}
			}
			stage.Handlers[j], handlers[h.Path], here = &mock, &mock, true
		}
		if !here {
			continue
		}
		if s.loop != nil { // the handlers of an element are in a pipeline of their own, too
			loop, once, element := *s.loop, *s.once, *s.once.Stages[0]
			element.Handlers = stage.Handlers
			once.Stages = []*Stage{&element}
			stage.loop, stage.once, loop.loop = &loop, &once, &stage
		}
		out.Stages[i], changed = &stage, true
	}
	if !changed {
		return p
	}
	return &out
}
