package core

import (
	"errors"
	"fmt"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file applies the rules of on-error to a handler whose call has failed for good.

// settle gives a handler up, unless a rule lets the run continue.
func (r *Run) settle(s *planner.Step, err error, live Live) {
	rules := s.Handler.RulesFor(false)
	if len(rules) == 0 {
		r.giveUp(s, err, live)
		return
	}
	env := r.scope.env(live)
	env["error"] = r.records[s.Position].errorData(err)
	rule, broken := ruleFor(rules, err, env)
	switch {
	case broken != nil:
		// A rule that cannot be evaluated must not hide the error that it is about.
		r.giveUp(s, fmt.Errorf("%w; on-error: %s", err, broken.Error()), live)
	case rule == nil:
		r.giveUp(s, err, live)
	case rule.Then == "continue":
		r.goOn(s, rule, err, env, live)
	case rule.Then == "skip" && !s.Handler.IsCritical():
		rec := &r.records[s.Position]
		rec.status = statusOf(err)
		r.skip(s, "on-error skips after "+model.ClassOf(err), live)
		r.standIn(s, live)
	default:
		r.giveUp(s, explained(rule, err, env), live)
	}
}

// settleItem gives an item up. A rule may leave it out, so that its failure does not fail the handler. Its entry in
// the response is that of a failed item.
func (r *Run) settleItem(u unit, err error, live Live) {
	rules := u.Handler.RulesFor(true)
	if len(rules) == 0 {
		r.itemFailed(u, err)
		return
	}
	env := r.scope.envOf(u, live)
	env["error"] = u.rec.errorData(err)
	rule, broken := ruleFor(rules, err, env)
	switch {
	case broken != nil:
		r.itemFailed(u, fmt.Errorf("%w; on-error: %s", err, broken.Error()))
	case rule == nil:
		r.itemFailed(u, err)
	case rule.GoesOn():
		r.itemFailed(u, err)
		u.rec.reason = goneOn + u.rec.class
	default:
		r.itemFailed(u, explained(rule, err, env))
	}
}

// ruleFor returns the first rule that matches an error, or nil.
func ruleFor(rules []*tree.OnError, err error, env datum.Env) (*tree.OnError, error) {
	for _, rule := range rules {
		if len(rule.On) > 0 && !model.InClass(err, rule.On) {
			continue
		}
		if rule.When == nil {
			return rule, nil
		}
		v, broken := rule.When.Share(env)
		if broken != nil {
			return nil, broken
		}
		fits, ok := v.(bool)
		if !ok {
			return nil, fmt.Errorf("%s: when: want true or false, have %s", rule.When.Span, model.KindOf(v))
		}
		if fits {
			return rule, nil
		}
	}
	return nil, nil
}

// goOn decides a handler as succeeded after an error, with the values of the rule in place of its
// own result.
func (r *Run) goOn(s *planner.Step, rule *tree.OnError, err error, env datum.Env, live Live) {
	rec := &r.records[s.Position]
	if broken := r.scope.assignIn(rec, rule.Result, env); broken != nil {
		r.giveUp(s, fmt.Errorf("%w; on-error: %s", err, broken.Error()), live)
		return
	}
	rec.outcome, rec.reason = model.OutcomeSucceeded, goneOn+model.ClassOf(err)
	rec.response, rec.raw, rec.status = nil, nil, statusOf(err)
	r.decide(s, live)
}

// explained prefixes an error with the message of a rule.
func explained(rule *tree.OnError, err error, env datum.Env) error {
	if rule.Message == nil {
		return err
	}
	v, broken := rule.Message.Share(env)
	if broken != nil {
		return fmt.Errorf("%w; on-error: %s", err, broken.Error())
	}
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("%w; on-error: %s: message: want text, have %s", err, rule.Message.Span, model.KindOf(v))
	}
	return fmt.Errorf("%s: %w", text, err)
}

// errorData returns the root error of expressions. Attempts that a crash interrupted do not count,
// because rules must not depend on crashes.
func (r *record) errorData(err error) map[string]any {
	data := map[string]any{
		"class": model.ClassOf(err), "message": model.CleanText(err.Error()), "attempts": r.failures,
		"status": nil, "body": nil,
	}
	var status *model.StatusError
	var kept *model.KeptError
	switch {
	case errors.As(err, &status):
		data["status"], data["body"] = status.Status, status.Body
	case errors.As(err, &kept):
		data["attempts"] = kept.Failures
		if kept.Status != 0 {
			data["status"] = kept.Status
		}
	}
	return data
}

// statusOf returns the status of an unexpected reply, or 0 for other errors.
func statusOf(err error) int {
	var status *model.StatusError
	var kept *model.KeptError
	switch {
	case errors.As(err, &status):
		return status.Status
	case errors.As(err, &kept):
		return kept.Status
	}
	return 0
}
