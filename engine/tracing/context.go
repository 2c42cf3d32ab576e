package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// A trace context travels as two texts of the W3C: with events, and with the
// requests of handlers.
const (
	traceParentName = "traceparent"
	traceStateName  = "tracestate"
)

// MaxState is what the W3C wants everybody to pass on.
const MaxState = 512

// Context returns the trace context of a sender as an [model.Event] takes it: both
// texts are empty when parent is not well-formed, and state is when it is not. A
// broken trace is no reason to refuse an event.
func Context(parent, state string) (goodParent, goodState string) {
	if parent == "" {
		return "", ""
	}
	sc := remoteContext(parent, state)
	if !sc.IsValid() {
		return "", ""
	}
	if state = sc.TraceState().String(); len(state) > MaxState {
		state = ""
	}
	return parent, state
}

// remoteContext reads a trace context; the zero one when it is not well-formed.
func remoteContext(parent, state string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{traceParentName: parent, traceStateName: state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// wireContext writes a trace context.
func wireContext(sc trace.SpanContext) (parent, state string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier[traceParentName], carrier[traceStateName]
}

func spanContextOf(id trace.TraceID, span trace.SpanID, flags trace.TraceFlags, state trace.TraceState) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags, TraceState: state})
}
