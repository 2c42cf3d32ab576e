package tree

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// An OnError is one rule about a handler whose call has failed for good: it was
// repeated as retry says, or is not worth it. The first rule that fits counts;
// without one the handler fails. Rules are about calls: an expression that cannot
// be computed always fails the handler.
type OnError struct {
	Span diag.Span `yaml:"-"`

	places

	// On lists the classes of errors that the rule is for, as in retry; any when
	// it is left out.
	On spec.Names `yaml:"on" pattern:"class"`

	// When must be true for the rule to fit. It may read what the handler may, and
	// error: class, status, message, attempts and body, which is that of an HTTP
	// reply.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Then says how the run goes on: continue as if the handler had succeeded,
	// with the rule's result in place of its own; skip leaves the handler out, as
	// a switch would; fail gives it up, with the rule's message.
	Then string `yaml:"then" enum:"continue,skip,fail" required:"true"`

	// Result fills the shared state in place of the handler's result: names and
	// their values. Only with then: continue.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Message says what the error means; operators read it before the error
	// itself. Only with then: fail.
	Message *expr.Value `yaml:"message" kind:"string"`
}

// GoesOn tells whether the run goes on after an error that the rule fits.
func (o *OnError) GoesOn() bool { return o.Then != "fail" }

// reads lists what a rule reads, the error aside.
func (o *OnError) reads() []datum.Read {
	return readsWithout(expr.ErrorRoot, slices.Concat(o.When.Reads(), o.Result.Reads(), o.Message.Reads()))
}

// CatchesAll tells whether a rule fits whatever the error is.
func (o *OnError) CatchesAll() bool {
	return o.When == nil && (len(o.On) == 0 || slices.Contains(o.On, "any"))
}

// ErrorReads lists what the rules of on-error read, the error aside.
func (h *Handler) ErrorReads() []datum.Read {
	var out []datum.Read
	for _, rule := range h.OnError {
		out = append(out, rule.reads()...)
	}
	return out
}

// readsWithout drops the reads of a root.
func readsWithout(root string, reads []datum.Read) []datum.Read {
	return slices.DeleteFunc(reads, func(r datum.Read) bool { return r.Path[0] == root })
}

// GoesOn gives the first rule by which the run goes on after an error of the
// handler; nil when there is none.
func (h *Handler) GoesOn() *OnError {
	for _, rule := range h.OnError {
		if rule.GoesOn() {
			return rule
		}
	}
	return nil
}
