package enginetest_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/secrets"
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
	crash   crash
	secret  string // the value of each secret

	engine *engine.Virtual
	clock  *clock.Virtual
	run    string
	until  time.Time // by which it has to end
}

// A crash is the moment at which the node of a trial dies.
type crash struct {
	at    int  // a checkpoint, from 1; 0: never
	after bool // the checkpoint, not before it
}

func (c crash) String() string {
	return fmt.Sprintf("crash at checkpoint %d, after it: %t", c.at, c.after)
}

// eachCrash runs a trial without a crash, and then with one before and after each checkpoint. try
// returns the number of checkpoints.
func eachCrash(try func(crash) int) {
	for at, last := 1, try(crash{}); at <= last; at++ {
		try(crash{at, false})
		try(crash{at, true})
	}
}

// onEachStore runs a test on an empty store of each kind.
func onEachStore(t *testing.T, test func(t *testing.T, store store.Store)) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory":   func(*testing.T) store.Store { return memory.New(time.Now).Ports() },
		"sqlite":   func(t *testing.T) store.Store { return openStore(t, filepath.Join(t.TempDir(), "trial.db")) },
		"postgres": func(t *testing.T) store.Store { return openStore(t, enginetest.Postgres(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func openStore(t *testing.T, dsn string) store.Store {
	t.Helper()
	s, err := openSweepStore(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// startTrial submits the event.
func startTrial(t *testing.T, tr trial) trial {
	t.Helper()
	bundle := enginetest.Load(t, tr.flow, tr.types...)
	tr.clock = clock.NewVirtual(time.Now())
	var err error
	tr.engine, err = engine.NewVirtual(t.Context(), engine.VirtualOptions{
		Options: engine.Options{
			Store: tr.store, Types: tr.types, Bundle: bundle, Name: "test", Secrets: func(secrets.Use) (string, error) { return tr.secret, nil },
		},
		Clock: tr.clock, CrashAt: tr.crash.at, CrashAfter: tr.crash.after,
	})
	if err != nil {
		t.Fatal(err)
	}
	submitted, err := tr.engine.Engine().Submit(t.Context(), []intake.Submission{{Event: model.Event{
		Type: "work", ID: tr.what, Source: t.Name(), Payload: tr.payload, Time: tr.clock.Now(),
	}}})
	if err != nil || submitted[0].Err != nil {
		t.Fatal(err, submitted[0].Err)
	}
	tr.run, tr.until = submitted[0].Receipt.Run, tr.clock.Now().Add(time.Hour)
	return tr
}

// drain lets the run go on until nothing is left to do.
func (tr *trial) drain(t *testing.T) {
	t.Helper()
	if _, err := tr.engine.Drain(t.Context(), tr.until); err != nil {
		t.Fatalf("%s: %v", tr.what, err)
	}
}
