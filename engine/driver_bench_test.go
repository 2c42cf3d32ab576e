package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// BenchmarkFlow is one run of three handlers that do nothing, each checkpointed,
// with 64 in flight: what the engine itself costs, since the store keeps all in
// memory.
func BenchmarkFlow(b *testing.B) { benchmarkFlow(b, nil) }

// BenchmarkFlowTraced is the same with spans, which go nowhere: a run has ten.
func BenchmarkFlowTraced(b *testing.B) {
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewNoopExporter()), sdktrace.WithIDGenerator(tracing.SpanIDs{}))
	benchmarkFlow(b, p.Tracer("procaas"))
}

func benchmarkFlow(b *testing.B, tracer trace.Tracer) {
	const inFlight = 64
	noop := enginetest.Scripted("step", func(context.Context, *engine.Call, any) (model.Result, error) {
		return model.Result{}, nil
	})
	bundle := enginetest.Load(b, three, noop)
	db := enginetest.NewMemory().Ports()
	ledger := &ends{Ledger: db.Ledger, ended: make(chan struct{}, inFlight)}
	db.Ledger = ledger
	e, err := engine.New(engine.Options{Store: db, Types: []engine.HandlerType{noop}, Bundle: bundle, Tracer: tracer})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	defer running.Wait()
	defer cancel()

	slots := make(chan struct{}, inFlight)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		slots <- struct{}{}
		running.Go(func() {
			out, err := e.Submit(ctx, []intake.Submission{{Event: event("work", fmt.Sprint(i))}})
			if err != nil || out[0].Err != nil {
				b.Error(err, out)
			}
			<-ledger.ended
			<-slots
		})
	}
	for range inFlight {
		slots <- struct{}{}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "flows/s")
}

// An ends ledger tells when runs have ended.
type ends struct {
	store.Ledger
	ended chan struct{}
}

func (s *ends) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	errs, err := s.Ledger.Commit(ctx, node, changes)
	for i, c := range changes {
		if err == nil && errs[i] == nil && c.Status.Ended() {
			s.ended <- struct{}{}
		}
	}
	return errs, err
}
