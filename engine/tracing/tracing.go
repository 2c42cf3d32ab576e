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

// A run may go on for days, on one node after the other. So its spans are not
// kept: their ids follow from the run, and whoever ends something makes the
// whole span of it, with the times of the checkpoint. What is made of a trace
// needs no more than the run's id and the trace context of its event, which are
// stored with it.
//
// The spans are: one for the run, below that of the sender when the event names
// one; in it one for each stage; in that one for each handler that was decided;
// in that one for each attempt. The attempt's is what a service is told.

// SpanIDs gives spans the ids that the engine wants for them, and others random
// ones. The provider of [Options].Tracer must be made with it: it is the
// IDGenerator of the SDK.
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
	_, _ = rand.Read(id[:]) // which never fails
	return trace.TraceID(id[:16]), trace.SpanID(id[16:])
}

// NewSpanID returns the id of a span within a trace.
func (g SpanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// A Run makes the spans of one run. It belongs to the goroutine of the run,
// except for attempt. A nil Run makes none.
type Run struct {
	tracer  trace.Tracer
	claimed *store.Claimed

	span    trace.Span               // of the run; nil before it has begun
	Context trace.SpanContext        // of the span
	stage   int                      // whose span is the next one to make
	decided []checkpoint.HandlerView // that are not saved yet
}

// New returns the trace of a run, nil when nobody traces.
func New(tracer trace.Tracer, c *store.Claimed) *Run {
	if tracer == nil {
		return nil
	}
	return &Run{tracer: tracer, claimed: c}
}

// Resume tells that the spans of stages before this one are another job's.
func (t *Run) Resume(stage int) {
	if t != nil {
		t.stage = stage
	}
}

// Begin makes the span of the run; false when there is one already, or nobody
// traces. Unless this job ends the run, it is never handed out.
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
	if c.Generation > 0 { // an operator has retried it: the span before is over
		before := spanContextOf(ids.trace, t.id("run", c.Generation-1), trace.FlagsSampled, trace.TraceState{})
		options = append(options, trace.WithLinks(trace.Link{SpanContext: before}))
	}
	_, t.span = t.tracer.Start(ctx, pipeline, options...)
	t.Context = t.span.SpanContext()
	return true
}

// Note keeps a handler that was decided until that is saved.
func (t *Run) Note(h checkpoint.HandlerView) {
	if t != nil {
		t.decided = append(t.decided, h)
	}
}

// Saved hands out the spans of what a step that is durable now has ended. The
// run is nil when it ended before it began.
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
	// What the sampler left out costs no more than this.
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

// handlers makes the spans of the handlers that were decided.
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
		case h.Error != "": // excused by a rule
			span.SetAttributes(attribute.String("procaas.error", h.Error))
		}
		span.End(trace.WithTimestamp(to))
	}
	t.decided = nil
}

// stages makes the spans of the stages that the run has left, and of the one in
// which it ended.
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

// above returns the span of the calls that a handler is inside of. A stage that is repeated
// has none but its own as a stage of the run.
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

// withoutItem cuts the index of an item off a ref.
func withoutItem(ref string) string {
	if at := strings.LastIndex(ref, "["); at > strings.LastIndex(ref, model.IntoCall) {
		return ref[:at]
	}
	return ref
}

// An Attempt is the span of one attempt, and the trace context for those
// whom it calls.
type Attempt struct {
	span          trace.Span // nil when it is in no sample
	Parent, State string
}

// Attempt makes the span of an attempt; the context is that of the call.
func (t *Run) Attempt(ctx context.Context, task *core.Attempt) (context.Context, Attempt) {
	var a Attempt
	if !t.Context.IsSampled() {
		a.Parent, a.State = wireContext(t.Context)
		return ctx, a
	}
	path, name := task.Step.Path, " attempt"
	id := t.id(task.Ref(), t.claimed.Generation, "attempt", strconv.Itoa(task.Attempt))
	if task.Verify {
		name, id = " verify", trace.SpanID{} // one attempt may be asked about more than once
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

// End ends the span. Of an attempt that was broken off nobody knows how it ended.
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

// start makes a span of the run's trace.
func (t *Run) start(parent, id trace.SpanID, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	above := spanContextOf(t.Context.TraceID(), parent, t.Context.TraceFlags(), t.Context.TraceState())
	ctx := trace.ContextWithSpanContext(context.Background(), above)
	if id.IsValid() {
		ctx = context.WithValue(ctx, spanIDsKey{}, spanIDs{t.Context.TraceID(), id})
	}
	return t.tracer.Start(ctx, name, options...)
}

// with adds to attributes what all spans of the run have.
func (t *Run) with(list ...attribute.KeyValue) []attribute.KeyValue {
	return append(list, attribute.String("procaas.run", t.claimed.ID), attribute.String("procaas.key", t.claimed.Key))
}

// ID returns the trace of a run: that of its event, or one of its own when the event names none.
func ID(run, parent, state string) trace.TraceID {
	if remote := remoteContext(parent, state); remote.IsValid() {
		return remote.TraceID()
	}
	sum := sha256.Sum256([]byte("trace\x00" + run))
	return trace.TraceID(sum[:16])
}

// id is the same for the same thing, on any node and after any restart.
func (t *Run) id(name string, generation int, more ...string) trace.SpanID {
	parts := append([]string{"span", t.claimed.ID, strconv.Itoa(generation), name}, more...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return trace.SpanID(sum[:8])
}

// stageID is the span of a stage of the run.
func (t *Run) stageID(path string) trace.SpanID {
	return t.id(path, t.claimed.Generation, "stage")
}

// handlerID is the span of a handler, of which a repeated one has a single one for all items.
func (t *Run) handlerID(path string) trace.SpanID {
	return t.id(path, t.claimed.Generation, "handler")
}
