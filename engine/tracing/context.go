package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// A trace context is two texts defined by the W3C. Events and requests of handlers have them.
const (
	traceParentName = "traceparent"
	traceStateName  = "tracestate"
)

// MaxState is the length that every system must pass on, as the W3C requires.
const MaxState = 512

// Context returns the trace context of a sender in the form of an [model.Event]. Both texts are
// empty if parent is malformed, and state is empty if it is malformed itself. A broken trace
// context is no reason to refuse an event.
func Context(parent, state string) (goodParent, goodState string) {
	if parent == "" {
		return "", ""
	}
	sc := remoteContext(parent, state)
	if !sc.IsValid() {
		return "", ""
	}
	state = sc.TraceState().String()
	if len(state) > MaxState {
		state = ""
	}
	return parent, state
}

// remoteContext parses a trace context. It returns the zero one if it is malformed.
func remoteContext(parent, state string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{traceParentName: parent, traceStateName: state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// wireContext formats a trace context.
func wireContext(sc trace.SpanContext) (parent, state string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier[traceParentName], carrier[traceStateName]
}

func spanContextOf(id trace.TraceID, span trace.SpanID, flags trace.TraceFlags, state trace.TraceState) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags, TraceState: state})
}
