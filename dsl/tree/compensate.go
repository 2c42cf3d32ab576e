package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Compensation is a call that undoes a handler when the run fails for good. In addition to its own fields it has one
// handler type, such as request, with its fields. It may read everything that the handler's result may, with the values
// at the end of the run.
//
// After a critical handler failed and all calls in flight ended, the node compensates all handlers that succeeded. It
// does so one by one, the latest first. Then the run ends as cancelled, with the reason, and later events of its key
// run. Nobody can retry a compensated run. If a compensation fails for good, the others are still tried. Then the run
// fails, and a retry repeats only those that failed.
//
// The path of a compensation is that of the handler, followed by /compensate. Operators can hold it, limit it and switch
// it off there. One that is off is not called and counts as failed, so a retry makes it once it is on again. Switches
// above it only hold it.
type Compensation struct {
	Span diag.Span `yaml:"-"`

	places

	// Type is the name of the handler type; empty when there is none.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// Timeout bounds one attempt.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`

	// Deadline is the longest time that all attempts may take together, with the waits between them. Then the
	// compensation fails with an error of the class deadline. Deadlines of the pipeline and of stages do not count.
	Deadline time.Duration `yaml:"deadline" min:"1ms"`

	// Retry says how the node retries failed attempts.
	Retry *Retry `yaml:"retry"`

	// OnError lists rules for a compensation that failed for good. The first rule that matches applies. continue counts
	// it as done, such as after a 404 because nothing is there to undo. fail adds a message for operators.
	OnError []*OnError `yaml:"on-error"`
}

// compensatePath is the suffix of a compensation's path.
const compensatePath = "/compensate"

// Compensation returns the call that undoes the handler, as a handler of its own, or nil.
func (h *Handler) Compensation() *Handler { return h.undo }

// CompensateReads lists what the compensation of the handler reads.
func (h *Handler) CompensateReads() []datum.Read {
	if h.Compensate == nil {
		return nil
	}
	out := h.Compensate.Body.Reads()
	for _, rule := range h.Compensate.OnError {
		out = append(out, rule.reads()...)
	}
	return out
}

// UndoReads lists what the compensation reads, without what the handler itself sets, since a compensation runs
// only after its handler has succeeded.
func (h *Handler) UndoReads() []datum.Read {
	return except(h.CompensateReads(), func(r datum.Read) bool {
		return len(r.Path) > 1 && (r.Path[0] == "sources" && r.Path[1] == h.ID || r.Path[0] == expr.StateRoot && h.Result.Get(r.Path[1]) != nil)
	})
}

// undoBy returns the handler for a compensation.
func (h *Handler) undoBy(c *Compensation) *Handler {
	return &Handler{
		Span: c.Span, places: c.places, Path: h.Path + compensatePath, ID: h.ID, Owner: h.Owner,
		Type: c.Type, Body: c.Body, Timeout: c.Timeout, Deadline: c.Deadline, Retry: c.Retry, OnError: c.OnError,
	}
}
