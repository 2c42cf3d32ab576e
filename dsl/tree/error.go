package tree

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// An OnError is a rule for a handler whose call failed for good: it has used up its retries, or the error is not one to
// retry. The first rule that matches applies. If none matches, the handler fails. Rules are only about calls: an
// expression that cannot be computed always fails the handler.
//
// With for-each, a rule applies to the element whose call failed. The other elements go on. A rule with applies-to: list
// applies to the handler instead, when an element has failed it.
type OnError struct {
	Span diag.Span `yaml:"-"`

	places

	// On lists the classes of errors that the rule is for, as in retry. Its default is any.
	On spec.Names `yaml:"on" pattern:"class"`

	// When must be true for the rule to match. It may read what the handler may, and error with class, status, message,
	// attempts and body. The body is that of an HTTP reply.
	When *expr.Value `yaml:"when" kind:"bool"`

	// AppliesTo says what a rule of a handler with for-each decides about. element, the default, leaves out the element.
	// Its place in the response is the same as with on-failure: continue or collect. list decides about the whole handler
	// after an element has failed it. No further elements start then. A rule with a result is always about the list.
	AppliesTo string `yaml:"applies-to" enum:"element,list"`

	// Then says what the run does next. continue treats the handler as succeeded, with the result of the rule. skip
	// leaves the handler out, as a switch does. fail fails the handler with the message of the rule. For an element of a
	// for-each, continue and skip both leave the element out, and fail fails the element.
	Then string `yaml:"then" enum:"continue,skip,fail" required:"true"`

	// Result sets the shared state instead of the handler's result: names and their values. It is only for then: continue.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Message says what the error means. Operators see it before the error itself. It is only for then: fail.
	Message *expr.Value `yaml:"message" kind:"string"`
}

// GoesOn reports whether the run continues after an error that the rule matches.
func (o *OnError) GoesOn() bool { return o.Then != "fail" }

// reads lists what a rule reads, without the error.
func (o *OnError) reads() []datum.Read {
	return readsWithout(expr.ErrorRoot, slices.Concat(o.When.Reads(), o.Result.Reads(), o.Message.Reads()))
}

// CatchesAll reports whether a rule matches every error.
func (o *OnError) CatchesAll() bool {
	return o.When == nil && (len(o.On) == 0 || slices.Contains(o.On, "any"))
}

// ErrorReads lists what the rules of on-error read, without the error.
func (h *Handler) ErrorReads() []datum.Read {
	var out []datum.Read
	for _, rule := range h.OnError {
		out = append(out, rule.reads()...)
	}
	return out
}

// readsWithout returns reads without those of a root.
func readsWithout(root string, reads []datum.Read) []datum.Read {
	return except(reads, func(r datum.Read) bool { return r.Path[0] == root })
}

// except returns reads without some. It changes nothing, since expressions share their reads.
func except(reads []datum.Read, not func(datum.Read) bool) []datum.Read {
	if !slices.ContainsFunc(reads, not) {
		return reads
	}
	return slices.DeleteFunc(slices.Clone(reads), not)
}

// OfElement reports whether a rule decides about single elements of the handler's for-each.
func (h *Handler) OfElement(o *OnError) bool {
	return h.ForEach != nil && o.AppliesTo != "list" && o.Result == nil
}

// RulesFor lists the rules of on-error about elements, or those about the handler.
func (h *Handler) RulesFor(element bool) []*OnError {
	if h.ForEach == nil && !element {
		return h.OnError
	}
	var out []*OnError
	for _, rule := range h.OnError {
		if h.OfElement(rule) == element {
			out = append(out, rule)
		}
	}
	return out
}

// GoesOn returns the first rule with which the run continues after an error of the handler, or nil.
func (h *Handler) GoesOn() *OnError { return firstToGoOn(h.RulesFor(false)) }

// LeavesOut returns the first rule that leaves an element of for-each out after an error, or nil.
func (h *Handler) LeavesOut() *OnError { return firstToGoOn(h.RulesFor(true)) }

func firstToGoOn(rules []*OnError) *OnError {
	for _, rule := range rules {
		if rule.GoesOn() {
			return rule
		}
	}
	return nil
}
