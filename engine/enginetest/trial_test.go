package enginetest_test

import (
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A trial is one event that goes through a flow in virtual time, with a crash at a
// checkpoint.
type trial struct {
	store   store.Store
	types   []engine.HandlerType
	flow    string // with a pipeline for events of the type work
	what    string // for messages, and the id of the event
	payload any
	crashAt int  // 0: nowhere
	after   bool // the checkpoint, not before it

	engine *engine.Virtual
	run    string
	until  time.Time // by which it has to end
}

// startTrial submits the event.
func startTrial(t *testing.T, tr trial) trial {
	t.Helper()
	bundle := enginetest.Load(t, tr.flow, tr.types...)
	clock := clock.NewVirtual(time.Now())
	var err error
	tr.engine, err = engine.NewVirtual(t.Context(), engine.VirtualOptions{
		Options: engine.Options{Store: tr.store, Types: tr.types, Bundle: bundle, Name: "test"},
		Clock:   clock, CrashAt: tr.crashAt, CrashAfter: tr.after,
	})
	if err != nil {
		t.Fatal(err)
	}
	submitted, err := tr.engine.Engine().Submit(t.Context(), []intake.Submission{{Event: model.Event{
		Type: "work", ID: tr.what, Source: t.Name(), Payload: tr.payload, Time: clock.Now(),
	}}})
	if err != nil || submitted[0].Err != nil {
		t.Fatal(err, submitted[0].Err)
	}
	tr.run, tr.until = submitted[0].Receipt.Run, clock.Now().Add(time.Hour)
	return tr
}

// drain lets the run go on until nothing is left to do.
func (tr *trial) drain(t *testing.T) {
	t.Helper()
	if _, err := tr.engine.Drain(t.Context(), tr.until); err != nil {
		t.Fatalf("%s: %v", tr.what, err)
	}
}
