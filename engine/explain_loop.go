package engine

import (
	"fmt"
	"slices"
	"strings"
)

// This file explains what became of handlers of stages that are repeated.

// loopOf gives the repeated stage that a handler is of; nil when it is of none.
func (p *Plan) loopOf(s *Step) *Step {
	for _, g := range p.Stages {
		if g.loop != nil && !s.loops && slices.Contains(g.loop.all, s) {
			return g.Steps[0]
		}
	}
	return nil
}

// explainElements tells what became of a handler of a repeated stage, in all elements
// of which that is known.
func (x *explainer) explainElements(loop *Step) Explanation {
	x.out = Explanation{
		Run: x.record.ID, Pipeline: x.record.Pipeline, Status: x.record.Status, Path: x.s.Path, Outcome: "absent",
		WaitedFor: []WaitedFor{}, Decisions: []Decision{}, Missing: []string{}, Now: []string{},
	}
	x.present()
	views := x.inElements(x.s)
	if len(views) == 0 {
		x.out.DecidedBy = "not_reached"
		if h := x.find(loop.Path); h == nil {
			x.out.Summary = x.whyLoopAbsent(loop)
		} else if h.Items != nil && h.Items.Total == 0 {
			x.out.DecidedBy, x.out.Summary = "stage", fmt.Sprintf("it never ran: the list of stage %s was empty", loop.Handler.ID)
		} else if h.Outcome == OutcomeSkipped {
			x.out.DecidedBy, x.out.Summary = "stage", h.Reason
		} else {
			x.out.Summary = fmt.Sprintf("no element of stage %s has got to it yet", loop.Handler.ID)
		}
		return x.out
	}
	last := views[len(views)-1]
	x.out.Handler, x.out.Outcome, x.out.At = &last, last.Outcome, last.Finished
	if last.Started != nil {
		x.out.At = last.Started
	}
	x.judge(&last)
	x.out.Summary = fmt.Sprintf("%s: %s", elementOf(last), x.out.Summary)
	for _, v := range views[:len(views)-1] {
		more := fmt.Sprintf("%s: it is %s", elementOf(v), v.Outcome)
		if why := strings.TrimSpace(v.Error + " " + v.Reason); why != "" {
			more += ": " + why
		}
		x.out.Summary += "\n" + more
	}
	x.missing("what its expressions read in each element is not kept once the element is done")
	return x.out
}

// whyLoopAbsent says why the run has not reached a repeated stage.
func (x *explainer) whyLoopAbsent(loop *Step) string {
	inner := x.s
	x.s = loop
	defer func() { x.s = inner }()
	return x.whyAbsent()
}

// inElements lists what is known of a handler of a repeated stage: in each element that
// goes on or has failed, and what became of it in those that are done.
func (x *explainer) inElements(s *Step) (out []HandlerView) {
	for _, h := range x.view.Handlers {
		if h.Path == s.Path && h.Within != "" {
			out = append(out, h)
		}
	}
	return out
}

// elementOf names the element that a view is of.
func elementOf(h HandlerView) string {
	if _, index, ok := strings.Cut(h.Within, "["); ok {
		return "item " + strings.TrimSuffix(index, "]")
	}
	return "in the items that are done"
}

// elements tells the story of the handlers of a repeated stage.
func (x *explainer) elements(loop *Step) (out []StoryStep) {
	for _, s := range loop.callee.all {
		x.s = s
		views := x.inElements(s)
		if len(views) == 0 {
			out = append(out, StoryStep{Path: s.Path, Critical: s.Handler.IsCritical(), Outcome: "absent", Summary: "no element has got to it"})
			continue
		}
		for i := range views {
			x.out = Explanation{}
			x.judge(&views[i])
			out = append(out, StoryStep{
				Path: s.Path, Critical: s.Handler.IsCritical(), Outcome: views[i].Outcome, Handler: &views[i],
				Summary: elementOf(views[i]) + ": " + x.out.Summary,
			})
		}
	}
	return out
}
