package tree

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A ForEach repeats the call of a handler, or a whole stage, for each element of a list. The call may read item, the
// element, and index, its place from 0. The response of the handler is the list of all responses, in the order of the
// elements. Its result is computed once, from that list. The response of a stage is the list of the final shared states
// of its elements.
//
// Elements run in parallel. They run one after the other if the handler, or one of the stage, touches something or
// sends events. Each element has its own calls, with their own Idempotency-Key, retries and verification. After a crash
// only unfinished elements run. In a long list, so do calls that ended in the last moment, with the same key.
type ForEach struct {
	Span diag.Span `yaml:"-"`

	places

	// Items is the list.
	Items *expr.Value `yaml:"items" kind:"list" required:"true"`

	// MaxParallel is how many elements run at the same time. Its default is 10.
	MaxParallel int `yaml:"max-parallel" min:"1" max:"100"`

	// MaxItems is the longest list. The handler fails with a longer one.
	MaxItems int `yaml:"max-items" default:"1000" min:"1" max:"10000"`

	// OnFailure decides what happens when an element fails for good and no rule of on-error leaves it out. fail starts no further elements, and fails the
	// handler with the error of the first failed element. continue runs the other elements, and the response has null for
	// the failed one. collect also runs them, and the response has a mapping for each element. The mapping has response,
	// status and error, which is null or has class, status and message.
	OnFailure string `yaml:"on-failure" enum:"fail,continue,collect" default:"fail"`
}

// defaultParallel is the default number of concurrent elements.
const defaultParallel = 10

// ItemReads lists what the list of for-each reads.
func (h *Handler) ItemReads() []datum.Read {
	if h.ForEach == nil {
		return nil
	}
	return h.ForEach.Items.Reads()
}

// Parallel returns how many elements of for-each may run at once.
func (f *ForEach) Parallel() int {
	if f.MaxParallel > 0 {
		return f.MaxParallel
	}
	return defaultParallel
}

// readsWithoutItem removes the reads of item and index.
func readsWithoutItem(reads []datum.Read) []datum.Read {
	return readsWithout("item", readsWithout(expr.IndexRoot, reads))
}

// BodyReads lists what the body of the handler, its call of a pipeline, or the value of its rate limit reads,
// without the item of its for-each.
func (h *Handler) BodyReads() []datum.Read {
	reads := append(h.Body.Reads(), h.With().Reads()...)
	if h.RateLimit != nil {
		reads = append(reads, h.RateLimit.Per.Reads()...)
	}
	return readsWithoutItem(reads)
}

// VerifyReads lists what the verification of the handler reads, without the item of its for-each.
func (h *Handler) VerifyReads() []datum.Read {
	v := h.Verification()
	if v == nil {
		return nil
	}
	return readsWithoutItem(slices.Concat(v.Body.Reads(), v.Done.Reads()))
}

// KnownLength returns how many elements the list certainly has if it has any.
func (f *ForEach) KnownLength() int {
	switch v := f.Items; {
	case v == nil:
	case v.Kind == expr.ValueList:
		return max(1, len(v.Elems))
	case v.Kind == expr.ValueExpr && v.Computed != nil && len(v.Reads()) == 0:
		if data, err := v.Eval(nil); err == nil {
			if list, ok := data.([]any); ok {
				return max(1, min(len(list), f.MaxItems))
			}
		}
	}
	return 1
}

// MaxRunParts is the maximum number of handlers in one run. Each element of a for-each and each call of a
// pipeline counts. Nested lists multiply, and a run that is too large crashes its node.
const MaxRunParts = 100_000
