package tracing

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A run may take days, on several nodes. So its spans are not kept. Their ids are derived from the
// run, and whatever ends something makes its whole span, with the times of the checkpoint. This
// needs only the run's id and the trace context of its event, which are stored with it.
//
// There is one span for the run, below that of the sender if the event has one. It contains a span
// for each stage, which contains one for each decided handler, which contains one for each attempt.
// A service gets the span of the attempt.

// SpanIDs assigns spans the ids that the engine chooses, and random ids to others. It must be the
// IDGenerator of the SDK's provider for the tracer of engine.Options.
type SpanIDs struct{}

type spanIDsKey struct{}

type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs returns the ids of a span without a parent.
func (SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if ids, ok := ctx.Value(spanIDsKey{}).(spanIDs); ok {
		return ids.trace, ids.span
	}
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails
	return trace.TraceID(id[:16]), trace.SpanID(id[16:])
}

// NewSpanID returns the id of a span within a trace.
func (g SpanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// A Run makes the spans of one run. It belongs to the goroutine of the run, except for Attempt. A
// nil Run makes none.
type Run struct {
	tracer  trace.Tracer
	claimed *store.Claimed

	span    trace.Span               // of the run; nil before it has begun
	Context trace.SpanContext        // of the span
	stage   int                      // the next stage that needs a span
	decided []checkpoint.HandlerView // not saved yet
}

// New makes the trace of a run, or returns nil if the node does not trace.
func New(tracer trace.Tracer, c *store.Claimed) *Run {
	if tracer == nil {
		return nil
	}
	return &Run{tracer: tracer, claimed: c}
}

// Resume says that other jobs make the spans of the stages before this one.
func (t *Run) Resume(stage int) {
	if t != nil {
		t.stage = stage
	}
}

// Begin makes the span of the run. It returns false if there is one already, or if the node does
// not trace. The span is exported only if this job ends the run.
func (t *Run) Begin(pipeline string, at time.Time) bool {
	if t == nil || t.span != nil {
		return false
	}
	c := t.claimed
	ids := spanIDs{trace: ID(c.ID, c.Event.TraceParent, c.Event.TraceState), span: t.id("run", c.Generation)}
	ctx := context.WithValue(context.Background(), spanIDsKey{}, ids)
	if parent := remoteContext(c.Event.TraceParent, c.Event.TraceState); parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	options := []trace.SpanStartOption{
		trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(t.with(
			attribute.String("procaas.pipeline", pipeline),
			attribute.String("procaas.flow", c.Flow),
			attribute.String("procaas.event.accepted", c.Accepted.UTC().Format(time.RFC3339Nano)),
			attribute.String("cloudevents.event_id", c.Event.ID),
			attribute.String("cloudevents.event_source", c.Event.Source),
			attribute.String("cloudevents.event_type", c.Event.Type),
		)...),
	}
	if c.Generation > 0 { // an operator has retried it, so its first span has ended
		before := spanContextOf(ids.trace, t.id("run", c.Generation-1), trace.FlagsSampled, trace.TraceState{})
		options = append(options, trace.WithLinks(trace.Link{SpanContext: before}))
	}
	_, t.span = t.tracer.Start(ctx, pipeline, options...)
	t.Context = t.span.SpanContext()
	return true
}

// Exported returns the id of the trace if its spans are exported, or "".
func (t *Run) Exported() string {
	if t == nil || !t.Context.IsSampled() {
		return ""
	}
	return t.Context.TraceID().String()
}

// Note keeps a decided handler until it is saved.
func (t *Run) Note(h checkpoint.HandlerView) {
	if t != nil {
		t.decided = append(t.decided, h)
	}
}

// Saved exports the spans of everything that a saved step has ended. The run is nil if it ended
// before it began.
func (t *Run) Saved(r *core.Run, c model.Change, now time.Time) {
	if t == nil {
		return
	}
	if r == nil && !c.Status.Ended() {
		return
	}
	at := now
	if r != nil && !r.Began().IsZero() {
		at = r.Began()
	}
	t.Begin(cmp.Or(c.Pipeline, t.claimed.Event.Type), at)
	// An unsampled run costs no more than this.
	if !t.Context.IsSampled() {
		t.decided = nil
		return
	}
	if r != nil {
		t.handlers(r)
		t.stages(r, c)
	}
	if !c.Status.Ended() {
		return
	}
	t.span.SetAttributes(attribute.String("procaas.status", string(c.Status)))
	if c.Reason != "" {
		t.span.SetAttributes(attribute.String("procaas.reason", c.Reason))
	}
	if c.Status == model.Failed {
		t.span.SetAttributes(attribute.String("error.type", c.ErrorClass))
		t.span.SetStatus(codes.Error, c.Error)
	}
	t.span.End(trace.WithTimestamp(now))
}

// handlers makes the spans of the decided handlers.
func (t *Run) handlers(r *core.Run) {
	for _, h := range t.decided {
		s := core.StepOf(r.Plan(), h)
		if s == nil {
			continue
		}
		parent := t.stageID(s.StagePath)
		if h.Within != "" {
			parent = t.above(h.Within)
		}
		from, to := *h.Finished, *h.Finished
		if h.Started != nil {
			from = *h.Started
		}
		_, span := t.start(parent, t.handlerID(h.Ref()), s.Path, trace.WithTimestamp(from), trace.WithAttributes(t.with(
			attribute.String("procaas.pipeline", model.PipelineOf(s.Path)),
			attribute.String("procaas.stage", s.StagePath[len(model.PipelineOf(s.Path))+1:]),
			attribute.String("procaas.handler", s.Handler.ID),
			attribute.String("procaas.path", s.Path),
			attribute.String("procaas.outcome", h.Outcome),
			attribute.Int("procaas.attempts", h.Attempts),
			attribute.Bool("procaas.critical", s.Handler.IsCritical()),
		)...))
		if h.Reason != "" {
			span.SetAttributes(attribute.String("procaas.reason", h.Reason))
		}
		switch {
		case h.Outcome == model.OutcomeFailed:
			span.SetStatus(codes.Error, h.Error)
		case h.Error != "": // excused by a rule of on-error
			span.SetAttributes(attribute.String("procaas.error", h.Error))
		}
		span.End(trace.WithTimestamp(to))
	}
	t.decided = nil
}

// stages makes the spans of the stages that the run has left, and of the one in which it ended.
func (t *Run) stages(r *core.Run, c model.Change) {
	for ; t.stage < len(r.Plan().Stages) && (t.stage < r.Stage() || c.Status.Ended()); t.stage++ {
		from, to, ok := r.StageTimes(t.stage)
		if !ok {
			continue
		}
		id := r.Plan().Stages[t.stage].ID
		path := r.Plan().Pipeline.ID + "/" + id
		_, span := t.start(t.Context.SpanID(), t.stageID(path), path, trace.WithTimestamp(from), trace.WithAttributes(t.with(
			attribute.String("procaas.pipeline", r.Plan().Pipeline.ID),
			attribute.String("procaas.stage", id),
			attribute.String("procaas.path", path),
		)...))
		if strings.HasPrefix(c.FailedPath, path+"/") {
			span.SetStatus(codes.Error, c.Error)
		}
		span.End(trace.WithTimestamp(to))
	}
}

// above returns the span around a handler inside calls. A repeated stage has only its own span as a
// stage of the run.
func (t *Run) above(within string) trace.SpanID {
	for {
		at := strings.LastIndex(within, model.IntoCall)
		path := model.PathOf(within)
		switch {
		case strings.Count(path, "/") > 1:
			return t.handlerID(withoutItem(within))
		case at < 0:
			return t.stageID(path)
		}
		within = within[:at]
	}
}

// withoutItem removes the index of an item from a ref.
func withoutItem(ref string) string {
	if at := strings.LastIndex(ref, "["); at > strings.LastIndex(ref, model.IntoCall) {
		return ref[:at]
	}
	return ref
}

// An Attempt is the span of one attempt, and the trace context for the services that it calls.
type Attempt struct {
	span          trace.Span // nil if it is not sampled
	Parent, State string
}

// Attempt makes the span of an attempt. The context is for the call.
func (t *Run) Attempt(ctx context.Context, task *core.Attempt) (context.Context, Attempt) {
	var a Attempt
	if !t.Context.IsSampled() {
		a.Parent, a.State = wireContext(t.Context)
		return ctx, a
	}
	path, name := task.Step.Path, " attempt"
	id := t.id(task.Ref(), t.claimed.Generation, "attempt", strconv.Itoa(task.Attempt))
	if task.Verify {
		name, id = " verify", trace.SpanID{} // an attempt may be verified more than once
	}
	_, a.span = t.start(t.handlerID(withoutItem(task.Ref())), id, path+name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(t.with(
			attribute.String("procaas.path", path),
			attribute.Int("procaas.attempt", task.Attempt),
		)...))
	if task.Item > 0 {
		a.span.SetAttributes(attribute.Int("procaas.item", task.Item-1))
	}
	a.Parent, a.State = wireContext(a.span.SpanContext())
	return trace.ContextWithSpan(ctx, a.span), a
}

// End ends the span. The outcome of an interrupted attempt is unknown.
func (a Attempt) End(result model.Result, err error, brokenOff bool) {
	if a.span == nil {
		return
	}
	status := result.Status
	if unexpected, ok := errors.AsType[*model.StatusError](err); ok {
		status = unexpected.Status
	}
	if status != 0 {
		a.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	switch {
	case brokenOff:
		a.span.SetAttributes(attribute.Bool("procaas.broken_off", true))
	case err != nil:
		a.span.SetAttributes(attribute.String("error.type", model.ClassOf(err)))
		a.span.SetStatus(codes.Error, model.CleanText(err.Error()))
	}
	a.span.End()
}

// start makes a span in the run's trace.
func (t *Run) start(parent, id trace.SpanID, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	above := spanContextOf(t.Context.TraceID(), parent, t.Context.TraceFlags(), t.Context.TraceState())
	ctx := trace.ContextWithSpanContext(context.Background(), above)
	if id.IsValid() {
		ctx = context.WithValue(ctx, spanIDsKey{}, spanIDs{t.Context.TraceID(), id})
	}
	return t.tracer.Start(ctx, name, options...)
}

// with adds the attributes that all spans of the run have.
func (t *Run) with(list ...attribute.KeyValue) []attribute.KeyValue {
	return append(list, attribute.String("procaas.run", t.claimed.ID), attribute.String("procaas.key", t.claimed.Key))
}

// ID returns the trace of a run: that of its event, or its own if the event has none.
func ID(run, parent, state string) trace.TraceID {
	if remote := remoteContext(parent, state); remote.IsValid() {
		return remote.TraceID()
	}
	sum := sha256.Sum256([]byte("trace\x00" + run))
	return trace.TraceID(sum[:16])
}

// id returns a span id that is the same for the same thing, on every node and after every restart.
func (t *Run) id(name string, generation int, more ...string) trace.SpanID {
	parts := append([]string{"span", t.claimed.ID, strconv.Itoa(generation), name}, more...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return trace.SpanID(sum[:8])
}

// stageID returns the span of a stage of the run.
func (t *Run) stageID(path string) trace.SpanID {
	return t.id(path, t.claimed.Generation, "stage")
}

// handlerID returns the span of a handler. A repeated handler has one for all items.
func (t *Run) handlerID(path string) trace.SpanID {
	return t.id(path, t.claimed.Generation, "handler")
}
