package merge

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// This file enforces what the owner of a pipeline allows other owners to contribute.

// join adds the names that a contribution declares to its pipeline, or to one element of its repeated stage.
func (m *merger) join(h *tree.Handler, s *tree.Stage) {
	id, _, _ := strings.Cut(h.Into, "/")
	p := m.Bundle.Index.Pipelines[id]
	if len(h.SharedState.Keys()) == 0 {
		return
	}
	whole, sets := expr.FindKey(h.Sets(m.Types.SetsState(h)), h.ID)
	if _, own := expr.FindKey(h.SharedState.Keys(), h.ID); sets && !own {
		m.Errorf(whole.Span, rules.Contribution, "set the names in it: "+strings.Join(h.SharedState.KeyNames(), ", "),
			"contribution %q replaces shared-state.%s, which has its names", h.ID, h.ID)
	}
	if other, taken := expr.FindKey(m.stateKeys(p), h.ID); taken {
		m.Report(diag.Diagnostic{
			Span: h.PlaceOf("id", h.Span), Code: rules.Contribution,
			Message: fmt.Sprintf("the names of contribution %q would be in shared-state.%s, which exists", h.ID, h.ID),
			Hint:    "rename the handler",
			Related: []diag.Related{{Span: other.Span, Message: "declared here"}},
		})
		return
	}
	state := &p.SharedState
	if s.ForEach != nil {
		state = &s.SharedState
	}
	h.Join(state, m.Types.SetsState(h))
}

// checkContributions checks the contributions to a pipeline.
func (m *merger) checkContributions(p *tree.Pipeline) {
	m.checkInvitations(p)
	count := make(map[*tree.Contribution]int)
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			switch {
			case h.Into == "" && h.SharedState != nil:
				m.Errorf(h.PlaceOf("shared-state", h.Span), rules.Contribution, "declare the names under shared-state of the pipeline",
					"handler %q is no contribution, so it has no names of its own", h.ID)
			case h.Into == "" || p.Owner != "" && h.Owner == p.Owner:
			case !p.Closed():
				m.checkSoleWriter(p, h)
			case h.Owner == "":
				m.reportGuest(p, nil, h.PlaceOf("id", h.Span),
					fmt.Sprintf("contribution %q to pipeline %q has no owner", h.ID, p.ID), "write owner: your-team")
			default:
				m.checkGuest(p, s, h, count)
			}
		}
	}
}

// checkInvitations reports stages and names that the pipeline does not have.
func (m *merger) checkInvitations(p *tree.Pipeline) {
	for _, invited := range p.Contributions {
		for _, id := range invited.Stages {
			if !slices.Contains(p.StageIDs(), id) {
				m.Errorf(invited.PlaceOf("stages", invited.Span), rules.Contribution, m.DidYouMean(id, p.StageIDs),
					"pipeline %q has no stage %q", p.ID, id)
			}
		}
		for _, name := range invited.Writes {
			if _, declared := expr.FindKey(m.stateKeys(p), name); !declared {
				names := func() (out []string) {
					for _, k := range m.stateKeys(p) {
						out = append(out, k.Name)
					}
					return out
				}
				m.Errorf(invited.PlaceOf("writes", invited.Span), rules.Contribution, m.DidYouMean(name, names),
					"shared-state.%s is not declared", name)
			}
		}
	}
}

// checkGuest checks a contribution against what the pipeline's owner allows.
func (m *merger) checkGuest(p *tree.Pipeline, s *tree.Stage, h *tree.Handler, count map[*tree.Contribution]int) {
	invited := p.Invitation(h.Owner, s.ID)
	if invited == nil {
		var more []string
		for _, name := range m.setByGuest(p, h) {
			more = append(more, name.Name)
		}
		if more != nil {
			more = []string{"writes: [" + strings.Join(more, ", ") + "]"}
		}
		if h.Critical != nil && *h.Critical {
			more = append(more, "critical: true")
		}
		m.reportGuest(p, nil, h.PlaceOf("into", h.Span), fmt.Sprintf("pipeline %q takes no handlers of %s in stage %q", p.ID, h.Owner, s.ID),
			fmt.Sprintf("ask %s to add to the pipeline: %s", askedOwner(p), tree.InvitationWanted(h.Owner, s.ID, more...)))
		return
	}
	count[invited]++
	if invited.Handlers > 0 && count[invited] > invited.Handlers {
		m.reportGuest(p, invited, h.PlaceOf("id", h.Span),
			fmt.Sprintf("contribution %q is one too many: pipeline %q takes %s", h.ID, p.ID, diag.Plural(invited.Handlers, "handler")),
			fmt.Sprintf("ask %s to raise handlers", askedOwner(p)))
	}
	if h.Critical != nil && *h.Critical && !invited.Critical {
		m.reportGuest(p, invited, h.PlaceOf("critical", h.Span),
			fmt.Sprintf("runs of pipeline %q may not fail because of contribution %q", p.ID, h.ID),
			fmt.Sprintf("write critical: false, or ask %s to allow critical: true", askedOwner(p)))
	}
	if h.Parks() && !invited.Critical {
		m.reportGuest(p, invited, h.PlaceOf("on-unknown", h.Span),
			fmt.Sprintf("runs of pipeline %q may not wait for an operator because of contribution %q", p.ID, h.ID),
			fmt.Sprintf("delete on-unknown: park, or ask %s to allow critical: true", askedOwner(p)))
	}
	if h.Compensate != nil && !invited.Critical {
		m.reportGuest(p, invited, h.PlaceOf("compensate", h.Span),
			fmt.Sprintf("runs of pipeline %q may not fail because of the compensation of contribution %q", p.ID, h.ID),
			fmt.Sprintf("delete compensate, or ask %s to allow critical: true", askedOwner(p)))
	}
	m.checkTime(p, h, invited)
	for _, name := range m.setByGuest(p, h) {
		if !slices.Contains(invited.Writes, name.Name) {
			m.reportGuest(p, invited, name.Span, fmt.Sprintf("contribution %q may not set shared-state.%s of pipeline %q", h.ID, name.Name, p.ID),
				h.OwnName(name.Name)+fmt.Sprintf(". Or ask %s to list it under writes", askedOwner(p)))
		}
	}
}

// checkTime reports a contribution that may take longer than the pipeline's owner allows. Only a deadline
// limits the time, since waits for limits and for services that are down have no limit.
func (m *merger) checkTime(p *tree.Pipeline, h *tree.Handler, invited *tree.Contribution) {
	t := m.Types[h.Type]
	most, has := tree.Longest{Time: invited.Deadline}, h.DeadlineBy(t, m.Bundle)
	if most.Time == 0 || has > 0 && has <= most.Time || t.SetsState || h.Type == "" && h.Await == nil && h.Call == nil {
		return
	}
	what := "has no deadline"
	if has > 0 {
		what = "has a deadline of " + tree.Longest{Time: has}.String()
	}
	m.reportGuest(p, invited, h.PlaceOf("deadline", h.PlaceOf("id", h.Span)),
		fmt.Sprintf("contribution %q %s, and pipeline %q allows %s", h.ID, what, p.ID, most),
		fmt.Sprintf("write deadline: %s, or ask %s to allow more", most, askedOwner(p)))
}

// checkSoleWriter reports a name that both a contribution and a handler of another owner set, if the pipeline
// has no rules for contributions.
func (m *merger) checkSoleWriter(p *tree.Pipeline, h *tree.Handler) {
	for _, name := range m.setByGuest(p, h) {
		for _, s := range p.Stages {
			for _, other := range s.Handlers {
				at, sets := expr.FindKey(m.setByGuest(p, other), name.Name)
				if other == h || other.Owner == h.Owner || !sets {
					continue
				}
				m.Report(diag.Diagnostic{
					Span: name.Span, Code: rules.Contribution,
					Message: fmt.Sprintf("contribution %q of %s sets shared-state.%s, which handler %q sets, too", h.ID, h.Owner, name.Name, other.ID),
					Hint:    h.OwnName(name.Name) + fmt.Sprintf(". Or add to the pipeline: contributions: [{owners: [%s], writes: [%s]}]", h.Owner, name.Name),
					Related: []diag.Related{{Span: at.Span, Message: "set here"}},
				})
			}
		}
	}
}

// Takes reports whether a declaration takes something from one of another owner without consent. The owner of the
// flow needs none. Neither does a declaration in the same file, since one owner has the file.
func (w *Whole) Takes(flow, owner string, at diag.Span, from string, there diag.Span) bool {
	f := w.Bundle.Index.Flows[flow]
	return owner != "" && from != "" && owner != from && at.File != there.File && (f == nil || f.Owner != owner)
}

// A flowWriter is a pipeline that sets a name of its flow.
type flowWriter struct {
	pipeline *tree.Pipeline
	key      expr.Key
}

// checkFlowWriters reports names of a flow that pipelines of two owners set. What contributions set is the business of
// their pipeline.
func (m *merger) checkFlowWriters() {
	writers := make(map[string][]flowWriter) // by flow/name
	for _, p := range m.Bundle.Pipelines {
		flow := m.Bundle.Index.Flows[p.Flow]
		if flow == nil || m.Bundle.Index.Pipelines[p.ID] != p {
			continue
		}
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				for _, name := range m.setByGuest(p, h) {
					if _, ofFlow := expr.FindKey(flow.SharedState.Keys(), name.Name); ofFlow && h.Into == "" {
						id := flow.ID + "/" + name.Name
						m.reportWriter(flow, flowWriter{p, name}, writers[id])
						writers[id] = append(writers[id], flowWriter{p, name})
					}
				}
			}
		}
	}
}

// reportWriter reports a pipeline that sets a name of its flow which a pipeline of another owner sets.
func (m *merger) reportWriter(flow *tree.Flow, w flowWriter, others []flowWriter) {
	for _, other := range others {
		if m.Takes(flow.ID, other.pipeline.Owner, other.key.Span, w.pipeline.Owner, w.key.Span) {
			w, other = other, w // report the one whose owner does not own the flow
		} else if !m.Takes(flow.ID, w.pipeline.Owner, w.key.Span, other.pipeline.Owner, other.key.Span) {
			continue
		}
		m.Report(diag.Diagnostic{
			Span: w.key.Span, Code: rules.Contribution,
			Message: fmt.Sprintf("pipeline %q of %s sets shared-state.%s of flow %q, which pipeline %q of %s sets, too",
				w.pipeline.ID, w.pipeline.Owner, w.key.Name, flow.ID, other.pipeline.ID, other.pipeline.Owner),
			Hint:    fmt.Sprintf("emit an event to a pipeline of %s that sets it, or put both pipelines into one file", other.pipeline.Owner),
			Related: []diag.Related{{Span: other.key.Span, Message: "set here"}},
		})
		return
	}
}

// setByGuest lists the names of the pipeline that a handler sets, without duplicates.
func (m *merger) setByGuest(p *tree.Pipeline, h *tree.Handler) []expr.Key {
	var out []expr.Key
	for _, k := range h.Sets(m.Types.SetsState(h)) {
		_, twice := expr.FindKey(out, k.Name)
		own := k.Name == h.ID && h.SharedState != nil
		if _, declared := expr.FindKey(m.stateKeys(p), k.Name); !twice && !own && declared {
			out = append(out, k)
		}
	}
	return out
}

// stateKeys lists the names of a pipeline's shared state, including those of its flow and of its repeated stages.
func (m *merger) stateKeys(p *tree.Pipeline) []expr.Key {
	keys := p.SharedState.Keys()
	if flow := m.Bundle.Index.Flows[p.Flow]; flow != nil {
		keys = slices.Concat(keys, flow.SharedState.Keys())
	}
	for _, s := range p.Stages {
		keys = slices.Concat(keys, s.SharedState.Keys())
	}
	return keys
}

// reportGuest reports a contribution, and the rule of the pipeline; nil if there is none.
func (m *merger) reportGuest(p *tree.Pipeline, invited *tree.Contribution, at diag.Span, message, hint string) {
	rule := diag.Related{Span: p.PlaceOf("id", p.Span), Message: "its owner is " + askedOwner(p)}
	if invited != nil {
		rule = diag.Related{Span: invited.Span, Message: "what it takes"}
	}
	m.Report(diag.Diagnostic{Span: at, Code: rules.Contribution, Message: message, Hint: hint, Related: []diag.Related{rule}})
}

// askedOwner returns the owner to ask about a pipeline.
func askedOwner(p *tree.Pipeline) string {
	if p.Owner == "" {
		return "whoever owns the pipeline"
	}
	return p.Owner
}
