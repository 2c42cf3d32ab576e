package language

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// Section is the field queue of pipelines.
func Section() tree.Section {
	return tree.Section{
		Of: fieldSpec(), In: "pipelines", After: "weight", Rules: readRules,
		Check: func(value any, c *tree.Checking) { checkQueue(value.(*Queue), c.Pipeline, c.Payload, c.Reporter) },
	}
}

// checkQueue checks the queue section of a pipeline. Its expressions are evaluated outside any run, when a task
// is put or has failed. So they read only the event, two payloads or the number of the attempt.
func checkQueue(q *Queue, p *tree.Pipeline, payload *typing.Outline, r *diag.Reporter) {
	if e := q.Unique.Expr(); e != nil {
		e.Compile(&expr.Scope{Roots: []string{"event"}, Payload: payload}, datum.AnyKind, r)
	}
	if e := q.Merge.Expr(); e != nil {
		e.Compile(&expr.Scope{Roots: []string{"first", "second"}}, datum.AnyKind, r)
	} else {
		spec.Compile(q.Merge, nil, &expr.Scope{Roots: []string{"first", "second"}}, r)
	}
	if q.Retry != nil {
		if e := q.Retry.Delay.Expr(); e != nil {
			e.Compile(&expr.Scope{Roots: []string{"attempt"}}, datum.AnyKind, r)
		}
		if q.Retry.MaxDelay < q.Retry.MinDelay {
			r.Errorf(q.Retry.PlaceOf("max-delay", q.Retry.Span), rules.CodeQueue, "raise max-delay", "max-delay %v is less than min-delay %v",
				q.Retry.MaxDelay, q.Retry.MinDelay)
		}
		tryDelay(q.Retry, r)
	}
	switch merges := q.OnDuplicate == "merge"; {
	// keep is the default, so the author may not have chosen it.
	case q.Unique.IsNull() && q.OnDuplicate != "keep":
		r.Errorf(q.PlaceOf("on-duplicate", q.Span), rules.CodeQueue, "add unique: the value that equal tasks have in common",
			"on-duplicate is %s, and no task of pipeline %q has a name", q.OnDuplicate, p.ID)
	case merges && q.Merge == nil:
		r.Errorf(q.PlaceOf("on-duplicate", q.Span), rules.CodeQueue, "add merge: an expression over first and second",
			"on-duplicate is merge, and nothing says how")
	case !merges && q.Merge != nil:
		r.Errorf(q.PlaceOf("merge", q.Span), rules.CodeQueue, "write on-duplicate: merge, or drop it", "merge has no effect while "+
			"on-duplicate is %s", q.OnDuplicate)
	}
}

// tryDelay reports a delay that is invalid for one of the first attempts. It reads only the number of the
// attempt, so it can be evaluated now instead of at the first failure.
func tryDelay(q *QueueRetry, r *diag.Reporter) {
	if e := q.Delay.Expr(); e != nil && e.Program == nil {
		return // already reported
	}
	for attempt := range 3 {
		d, said, err := q.DelayAfter(attempt + 1)
		if said && (err != nil || d < 0) {
			r.Errorf(q.PlaceOf("delay", q.Span), rules.CodeQueue, "write such as !$ 30 * attempt, or !$ '10s' if attempt < 3 else '5m'",
				"delay is not a duration after attempt %d", attempt+1)
			return
		}
	}
}
