package tree

import (
	"context"
	"slices"
	"strconv"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// A Handler is one step: a call of a service or a computation. The key that names its type, such as request, has the fields of that type.
type Handler struct {
	Span diag.Span `yaml:"-"`

	places

	// Path is pipeline/stage/handler; empty for a detached handler.
	Path string `yaml:"-"`

	// Branch is the branch of its stage that the handler belongs to; nil for none.
	Branch *Branch `yaml:"-"`

	// ID names the handler. It is the last part of its path.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Into names the stage of another team's pipeline to add the handler to: pipeline/stage.
	Into string `yaml:"into"`

	// Owner is the team that looks after the handler and gets its alerts.
	Owner string `yaml:"owner"`

	// SharedState declares names of a contribution's own, with the first values. The
	// handler sets them like any others. Everybody reads them as shared-state.HANDLER.NAME.
	// Only for handlers with into.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// Critical says that the run cannot succeed without the handler. A contribution must set it.
	Critical *bool `yaml:"critical" default:"true"`

	// Detached lets later stages begin before the handler is done. The run still ends after it. It is only for handlers
	// that are not critical and have nothing in common with what comes after them.
	Detached bool `yaml:"detached"`

	// Enabled says whether the run includes the handler.
	Enabled *expr.Value `yaml:"enabled" kind:"bool"`

	// Use inserts the handler of a template, which keeps the path of this one. Fields next to it replace those of the
	// template.
	Use *Use `yaml:"use"`

	// Await makes the handler wait for an event of the same key, instead of a call.
	Await *Await `yaml:"await"`

	// Call runs another pipeline, instead of a call of a service. The handlers have the paths of that pipeline.
	Call *Call `yaml:"call"`

	// ForEach repeats the call for each element of a list.
	ForEach *ForEach `yaml:"for-each"`

	// Type is the name of the handler type; empty for a placeholder that does
	// nothing.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// ResponseSchema is the schema of the handler's response. It is needed if no OpenAPI document of the service
	// declares the response. A response that does not fit is an error of the class schema. The node does not retry it
	// unless retry lists that class.
	ResponseSchema *expr.Value `yaml:"response-schema" kind:"schema" expr:"no"`

	// Result sets the shared state after the handler succeeded: names and their values, in order.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Touches names effects outside the shared state. Handlers of a stage that touch the same thing run in order.
	Touches spec.Names `yaml:"touches"`

	// Timeout bounds one attempt. It may be an expression over configs whose result is text such as 300ms.
	Timeout time.Duration `yaml:"timeout" min:"1ms" live:"true"`

	// Deadline is the longest time that all attempts of the handler may take together, with the waits before and
	// between them. The header X-Procaas-Time-Left tells the service how many milliseconds are left. An attempt in
	// flight ends at the deadline, and none starts later. Then the handler fails with an error of the class deadline. The
	// default is 2s for a request that is not critical and has no deadline, timeout, retry, rate-limit or max-in-flight. It may be an
	// expression over configs whose result is text such as 2s.
	Deadline time.Duration `yaml:"deadline" min:"1ms" live:"true"`

	// Live has the expressions of timeout and deadline.
	Live Times `yaml:"-"`

	// Retry says how the node retries failed attempts.
	Retry *Retry `yaml:"retry"`

	// OnUnknown decides about a call that was in flight when its node died, so that its result is unknown. retry, the
	// default, repeats it with the same Idempotency-Key. park makes the run wait until an operator retries or cancels
	// it. verify asks the service.
	OnUnknown *OnUnknown `yaml:"on-unknown" words:"retry,park"`

	// Compensate is a call that undoes the handler when the run fails for good.
	Compensate *Compensation `yaml:"compensate"`

	// OnError lists rules for a call that failed for good. The first rule that matches applies.
	OnError []*OnError `yaml:"on-error"`

	// Rollout runs the handler only in a share of the runs. It is only for handlers that are not critical.
	Rollout *Rollout `yaml:"rollout"`

	// RateLimit limits how often the handler is called, on all nodes together.
	RateLimit *RateLimit `yaml:"rate-limit"`

	// MaxInFlight is the highest number of calls of the handler in flight, on all nodes together. 0 is no limit. Each
	// node gets an equal part of it, but at least 1.
	MaxInFlight int `yaml:"max-in-flight" min:"1" max:"1000000"`

	// Fallback says when the engine takes the handler out of the flow, and which result replaces its own meanwhile. It
	// is only for handlers that are not critical.
	Fallback *Fallback `yaml:"fallback"`

	// What the checks make of the above.
	ResponseContract *contracts.Contract `yaml:"-"` // of ResponseSchema; nil for anything
	Calls            *contracts.Call     `yaml:"-"` // of a service with an OpenAPI document; nil when that is not known
	Expected         *typing.Outline     `yaml:"-"` // what the responses of calls are

	// Undescribed are the expected statuses outside of 2xx, such as 404, whose bodies no schema describes. They may be
	// text, or nothing. A response-schema describes 2xx only, unless no 2xx is expected.
	Undescribed []string `yaml:"-"`

	// LeadsBack says that the handler emits an event, or puts a task, that may lead back
	// to its pipeline, by way of others or not.
	LeadsBack bool `yaml:"-"`

	undo *Handler // the compensation as a handler
	loop *Stage   // the repeated stage that this handler is from outside
}

// Place sets the path of the handler and of its compensation.
func (h *Handler) Place(path string) {
	h.Path = path
	if h.Compensate != nil {
		h.undo = h.undoBy(h.Compensate)
	}
}

// Undescribes reports whether the handler expects a status whose body no schema describes.
func (h *Handler) Undescribes(status int) bool {
	text := strconv.Itoa(status)
	return slices.ContainsFunc(h.Undescribed, func(s string) bool { return s == text || s == text[:1]+"xx" })
}

// CheckResponse checks the response of the handler against its schema, or against the service's OpenAPI
// document for the status. status is 0 for responses without one. The error is a [*contracts.Error], or that of
// ctx.
func (h *Handler) CheckResponse(ctx context.Context, status int, data any) error {
	if h.ResponseContract != nil {
		if h.Undescribes(status) {
			return nil
		}
		return h.ResponseContract.CheckContext(ctx, data)
	}
	if h.Calls == nil || status < 100 {
		return nil
	}
	return h.Calls.Check(ctx, status, data)
}

// ConditionReads lists what enabled and rollout read.
func (h *Handler) ConditionReads() []datum.Read {
	if h.Rollout == nil {
		return h.Enabled.Reads()
	}
	return slices.Concat(h.Enabled.Reads(), h.Rollout.By.Reads())
}

// Reads lists everything that the handler reads, including its verification, its fallback and the rules of
// on-error.
func (h *Handler) Reads() []datum.Read {
	out := slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads(), h.Result.Reads(), h.VerifyReads(), h.ErrorReads(),
		h.CompensateReads())
	if h.Fallback != nil {
		out = append(out, h.Fallback.Result.Reads()...)
	}
	return out
}

// IsCritical reports whether the run cannot succeed without the handler.
func (h *Handler) IsCritical() bool { return h.Critical == nil || *h.Critical }

// IDPlace returns the position of the handler's id.
func (h *Handler) IDPlace() diag.Span { return h.PlaceOf("id", h.Span) }

// AlwaysSucceeds reports whether a run continues after the handler only if it succeeds.
func (h *Handler) AlwaysSucceeds() bool {
	return h.IsCritical() && h.Enabled.IsNull() && h.Rollout == nil && h.GoesOn() == nil
}
