package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/tracing"
)

const (
	senderTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	senderSpan   = "00f067aa0ba902b7"
	senderParent = "00-" + senderTrace + "-" + senderSpan + "-01"
)

// A spanBook keeps the spans of any number of engines.
type spanBook struct {
	t        *testing.T
	exporter *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newSpanBook(t *testing.T, options ...sdktrace.TracerProviderOption) *spanBook {
	x := tracetest.NewInMemoryExporter()
	options = append(options, sdktrace.WithSyncer(x), sdktrace.WithIDGenerator(tracing.SpanIDs{}))
	return &spanBook{t, x, sdktrace.NewTracerProvider(options...)}
}

func (tr *spanBook) on(o *engine.Options) { o.Tracer = tr.provider.Tracer("procaas") }

// label is the name of a span with the attributes that tell most.
func label(s tracetest.SpanStub) string {
	text := s.Name
	for _, a := range s.Attributes {
		switch a.Key {
		case "procaas.status", "procaas.outcome", "procaas.attempt", "procaas.item", "error.type":
			text += fmt.Sprintf(" %s=%s", strings.TrimPrefix(string(a.Key), "procaas."), a.Value.String())
		}
	}
	return text
}

// tree draws the spans of one trace, siblings by name. The id of the parent of the uppermost ones is shown.
func (tr *spanBook) tree(trace string) string {
	children := map[string][]tracetest.SpanStub{}
	ids := map[string]bool{}
	for _, s := range tr.exporter.GetSpans() {
		if s.SpanContext.TraceID().String() != trace {
			continue
		}
		if id := s.SpanContext.SpanID().String(); ids[id] {
			tr.t.Errorf("the span %s %s is there twice", id, s.Name)
		} else {
			ids[id] = true
		}
		parent := s.Parent.SpanID().String()
		children[parent] = append(children[parent], s)
	}
	var out strings.Builder
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		list := children[parent]
		delete(children, parent)
		slices.SortStableFunc(list, func(a, b tracetest.SpanStub) int { return strings.Compare(label(a), label(b)) })
		for _, s := range list {
			fmt.Fprintf(&out, "%s%s\n", indent, label(s))
			draw(s.SpanContext.SpanID().String(), indent+"  ")
		}
	}
	roots := []string{}
	for parent := range children {
		if !ids[parent] {
			roots = append(roots, parent)
		}
	}
	for _, parent := range slices.Sorted(slices.Values(roots)) {
		fmt.Fprintf(&out, "%s\n", parent)
		draw(parent, "  ")
	}
	return out.String()
}

func (tr *spanBook) want(trace, want string) {
	tr.t.Helper()
	if have := tr.tree(trace); have != want {
		tr.t.Errorf("want the spans\n%s\nhave\n%s", want, have)
	}
}

func traced(key string) model.Event {
	ev := event("work", key)
	ev.TraceParent, ev.TraceState = senderParent, "congo=t61rcWkgMzE"
	return ev
}

const tracedYAML = `
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - {id: one, step: {}, retry: {attempts: 2, min-delay: 1s, on: [any]}}
          - {id: off, critical: false, enabled: false, step: {}}
      - id: b
        handlers: [{id: two, step: {}}]
`

func TestTraceHasASpanForEventStageHandlerAndAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tr := newSpanBook(t)
		var told []string
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			told = append(told, c.TraceParent+" "+c.TraceState)
			if c.Attempt == 1 {
				return model.Result{}, &model.StatusError{Status: 503, Method: "POST", URL: "http://push/"}
			}
			return model.Result{Status: 200}, nil
		})
		e, _ := r.start(tracedYAML, tr.on)
		r.settle(e, r.submit(e, traced("k")), model.Succeeded)
		tr.want(senderTrace, senderSpan+`
  work status=succeeded
    work/a
      work/a/off outcome=skipped
      work/a/one outcome=succeeded
        work/a/one attempt attempt=1 error.type=503
        work/a/one attempt attempt=2
    work/b
      work/b/two outcome=succeeded
        work/b/two attempt attempt=1
`)
		var attempts []string
		for _, s := range tr.exporter.GetSpans() {
			if s.Name == "work/a/one attempt" {
				attempts = append(attempts, "00-"+senderTrace+"-"+s.SpanContext.SpanID().String()+"-01 congo=t61rcWkgMzE")
			}
			if s.Name == "work/a/one" && s.EndTime.Sub(s.StartTime) < time.Second {
				t.Errorf("want the span of the handler to last from its first attempt on, have %s to %s", s.StartTime, s.EndTime)
			}
		}
		if !slices.Equal(told, attempts) {
			t.Errorf("want services told of the spans of the attempts %q, have %q", attempts, told)
		}
	})
}

func TestTraceGoesOnAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tr := newSpanBook(t)
		stuck := make(gate)
		r.on("two", stuck.do)
		store := &enginetest.Faulty{Store: r.store}
		first, stop := r.startOn(store.Ports(), tracedYAML, tr.on)
		run := r.submit(first, traced("k"))
		pass(time.Second)
		r.want("work/a/one", "work/b/two")
		store.Cut()
		stop()
		r.on("two", nil)
		second, _ := r.start(tracedYAML, tr.on)
		r.settle(second, run, model.Succeeded)
		tr.want(senderTrace, senderSpan+`
  work status=succeeded
    work/a
      work/a/off outcome=skipped
      work/a/one outcome=succeeded
        work/a/one attempt attempt=1
    work/b
      work/b/two outcome=succeeded
        work/b/two attempt attempt=1
        work/b/two attempt attempt=2
`)
	})
}

func TestTraceOfARunThatIsRetriedAndOfOneThatIsParked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tr := newSpanBook(t)
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			return model.Result{Until: c.Now.Add(time.Hour)}, nil
		})
		r.on("two", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no stock"))
		})
		e, _ := r.start(tracedYAML, tr.on)
		run := r.submit(e, traced("k"))
		pass(2 * time.Hour)
		r.settle(e, run, model.Failed)
		r.on("two", nil)
		if _, err := e.Retry(t.Context(), run, operator); err != nil {
			t.Fatal(err)
		}
		r.settle(e, run, model.Succeeded)
		tr.want(senderTrace, senderSpan+`
  work status=failed error.type=other
    work/a
      work/a/off outcome=skipped
      work/a/one outcome=succeeded
        work/a/one attempt attempt=1
    work/b
      work/b/two outcome=failed
        work/b/two attempt attempt=1 error.type=other
  work status=succeeded
    work/b
      work/b/two outcome=succeeded
        work/b/two attempt attempt=1
`)
		for _, s := range tr.exporter.GetSpans() {
			if s.Name == "work" && s.Status.Description == "" && len(s.Links) != 1 {
				t.Errorf("want the second span of the run to name the first, have links %v", s.Links)
			}
			if s.Name == "work/a" && s.EndTime.Sub(s.StartTime) < time.Hour {
				t.Errorf("want the span of the stage to last as long as its wait, have %s to %s", s.StartTime, s.EndTime)
			}
		}
	})
}

func TestTraceOfAnIterationHasASpanForEachItem(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tr := newSpanBook(t)
		e, _ := r.start(`
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: each, for-each: {items: !$ "[1, 2]"}, step: {}}]}]
`, tr.on)
		r.settle(e, r.submit(e, traced("k")), model.Succeeded)
		tr.want(senderTrace, senderSpan+`
  work status=succeeded
    work/a
      work/a/each outcome=succeeded
        work/a/each attempt attempt=1 item=0
        work/a/each attempt attempt=1 item=1
`)
	})
}

func TestTraceGoesOnInEmittedEvents(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tr := newSpanBook(t)
		r.on("send", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{Emit: []model.Event{{Type: "next", ID: "n-1"}}}, nil
		})
		e, _ := r.start(`
pipelines:
  - {id: work, stages: [{id: a, handlers: [{id: send, step: {}}]}]}
  - {id: next, stages: [{id: a, handlers: [{id: take, step: {}}]}]}
`, tr.on)
		r.submit(e, traced("k"))
		pass(time.Second)
		tr.want(senderTrace, senderSpan+`
  work status=succeeded
    work/a
      work/a/send outcome=succeeded
        work/a/send attempt attempt=1
          next status=succeeded
            next/a
              next/a/take outcome=succeeded
                next/a/take attempt attempt=1
`)
	})
}

// Without a sender's trace a run has one of its own; what is in no sample is
// still told to services; and runs that never begin are seen, too.
func TestTraceWithoutASender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, tr, none := newRig(t), newSpanBook(t), newSpanBook(t, sdktrace.WithSampler(sdktrace.NeverSample()))
		var told string
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			told = c.TraceParent
			return model.Result{}, nil
		})
		const never = tracedYAML + "  - {id: never, when: false, stages: [{id: a, handlers: [{id: one, step: {}}]}]}\n"
		e, stop := r.start(never, tr.on)
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		traces := map[string]bool{}
		for _, s := range tr.exporter.GetSpans() {
			traces[s.SpanContext.TraceID().String()] = true
		}
		if len(traces) != 1 || !traces[told[3:35]] {
			t.Errorf("want one trace, and services told of it, have %v and %q", traces, told)
		}
		tr.exporter.Reset()
		r.settle(e, r.submit(e, event("never", "")), model.Ignored)
		if spans := tr.exporter.GetSpans(); len(spans) != 1 || spans[0].Name != "never" {
			t.Errorf("want a span of a run that was ignored, have %+v", spans)
		}
		stop()

		e = r.engine(r.store, tracedYAML, none.on)
		r.run(e)
		r.settle(e, r.submit(e, traced("k")), model.Succeeded)
		if spans := none.exporter.GetSpans(); len(spans) != 0 {
			t.Errorf("want no spans of what is in no sample, have %d", len(spans))
		}
		if !strings.HasPrefix(told, "00-"+senderTrace) || !strings.HasSuffix(told, "-00") {
			t.Errorf("want services told that the trace is in no sample, have %q", told)
		}
	})
}

func TestNothingIsTracedUnlessWanted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var told string
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			told = c.TraceParent + " " + c.TraceState
			return model.Result{}, nil
		})
		e, _ := r.start(tracedYAML)
		r.settle(e, r.submit(e, traced("k")), model.Succeeded)
		if told != senderParent+" congo=t61rcWkgMzE" {
			t.Errorf("want the sender's trace passed on as it is, have %q", told)
		}
	})
}

func TestTraceContextDropsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ parent, state, wantParent, wantState string }{
		{senderParent, "congo=t61rcWkgMzE,rojo=00f067", senderParent, "congo=t61rcWkgMzE,rojo=00f067"},
		{senderParent, "no list", senderParent, ""},
		{senderParent, "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 250) + ",c=" + strings.Repeat("x", 50), senderParent, ""},
		{"", "congo=t61rcWkgMzE", "", ""},
		{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", "", ""},
		{"ff-" + senderTrace + "-00f067aa0ba902b7-01", "", "", ""},
		{"00-" + senderTrace + "-00f067aa0ba902b7", "", "", ""},
		{"00-" + strings.ToUpper(senderTrace) + "-00f067aa0ba902b7-01", "", "", ""},
		{"\r\nX: y", "", "", ""},
	} {
		parent, state := tracing.Context(c.parent, c.state)
		if parent != c.wantParent || state != c.wantState {
			t.Errorf("%q %q: want %q %q, have %q %q", c.parent, c.state, c.wantParent, c.wantState, parent, state)
		}
	}
}
