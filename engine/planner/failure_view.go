package planner

import (
	"fmt"
	"strings"

	"procaas/dsl/tree"
)

// This file says in words what happens when a handler fails.

// failure says what follows when all attempts of a handler have failed and no rule of on-error says otherwise.
func (p *Plan) failure(stage *Stage, s *Step) string {
	h := s.Handler
	var out string
	if h.ForEach != nil {
		out = elementFails(h.ForEach)
	}
	switch {
	case h.ForEach != nil && h.ForEach.OnFailure != "fail":
		return out
	case !h.IsCritical() && s.StandsIn():
		return out + "the run goes on with fallback.result"
	case !h.IsCritical():
		return out + "the run goes on without it"
	case stage.Loop() != nil && stage.Declared.ForEach.OnFailure != "fail":
		return out + elementFails(stage.Declared.ForEach)
	case s.Final:
		return out + "the others of finally are tried, and the run fails"
	}
	return out + p.fails()
}

// fails says what follows when a critical handler has failed.
func (p *Plan) fails() string {
	switch {
	case p.Pipeline.IsCalled() && p.Undoes:
		return "the called pipeline is undone, and the handler that calls it fails"
	case p.Pipeline.IsCalled():
		return "the handler that calls the pipeline fails"
	case p.Undoes:
		return "the run is undone and ends as cancelled"
	case p.Flow == nil || p.Flow.OnFailure == "skip":
		return "the run fails"
	}
	return "the run fails, and later events of its key wait"
}

// undone says how a handler that has succeeded is undone when the run fails later, and what follows if that fails.
func undone(stage *Stage, s *Step) string {
	const stays = ". If that fails for good, the others are still undone, and the run fails"
	h := s.Handler
	switch inList := h.ForEach != nil || stage.Loop() != nil; {
	case s.Undo != nil:
		out := "a later failure calls its compensation"
		if s.Undo.Deadline > 0 {
			out += fmt.Sprintf(", within %s", durationText(s.Undo.Deadline))
		}
		for _, rule := range s.Undo.Handler.OnError {
			out += ", on error " + ruleText(s.Undo.Handler, rule)
		}
		return out + stays
	case s.Callee == nil || !s.Callee.Undoes:
		return ""
	case inList:
		return "nothing undoes the elements that have succeeded"
	}
	return "a later failure undoes what " + s.Callee.Pipeline.ID + " has done, the latest first" + stays
}

// elementFails says what follows when an element fails.
func elementFails(f *tree.ForEach) string {
	switch f.OnFailure {
	case "continue":
		return "the element is null in the response, and the others go on"
	case "collect":
		return "the response has the error of the element, and the others go on"
	}
	return "no further element starts. Then "
}

// ruleText says what a rule of on-error matches, and what follows.
func ruleText(h *tree.Handler, rule *tree.OnError) string {
	on := "any"
	if len(rule.On) > 0 {
		on = strings.Join(rule.On, " ")
	}
	if when := sourceText(rule.When); when != "" {
		on += " if " + when
	}
	what := rule.Then
	switch {
	case h.OfElement(rule) && rule.GoesOn() && h.ForEach.OnFailure == "collect":
		what += ", with the error in the place of the element"
	case h.OfElement(rule) && rule.GoesOn():
		what += ", with null in the place of the element"
	case h.OfElement(rule):
		what += ", for the element"
	case h.ForEach != nil:
		what += ", for the whole list"
	}
	return fmt.Sprintf("%s: %s", on, what)
}
