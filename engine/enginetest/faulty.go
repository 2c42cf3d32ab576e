package enginetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// ErrInjected is the error of a Faulty store.
var ErrInjected = errors.New("injected fault")

// A Faulty store fails when a test wants it to. Set its fields before anything uses it.
type Faulty struct {
	store.Store

	// Before is called before an operation: join, beat, claim, accept, commit, leave, report,
	// deliberate, conclude, outages, probe or usage. If it returns an error, the operation is not done.
	Before func(op string) error

	// After is called after a successful operation. If it returns an error, the operation was done,
	// but its answer is lost.
	After func(op string) error

	cut atomic.Bool
}

// Cut breaks the connection forever, as if the process was killed: no later operation is done.
func (f *Faulty) Cut() { f.cut.Store(true) }

// before decides whether an operation fails without being done.
func (f *Faulty) before(op string) error {
	if f.cut.Load() {
		return ErrInjected
	}
	if f.Before != nil {
		return f.Before(op)
	}
	return nil
}

// after decides whether the answer of an operation is lost.
func (f *Faulty) after(op string, err error) error {
	if f.cut.Load() {
		return ErrInjected
	}
	if err == nil && f.After != nil {
		return f.After(op)
	}
	return err
}

// Ports returns the failing store. It has no optional ports such as Waker, so that a node learns
// everything through calls that may fail.
func (f *Faulty) Ports() store.Store {
	db := f.Store
	db.Inbox, db.Ledger, db.Degradation = faultyInbox{db.Inbox, f}, faultyLedger{db.Ledger, f}, faultyDegradation{db.Degradation, f}
	db.Usage = faultyUsage{db.Usage, f}
	db.Waker = nil
	db.Gauge = nil
	db.Trimmer = nil
	db.Scattered = nil
	db.Tasks = nil
	return db
}

// These are the failing ports.
type (
	faultyInbox struct {
		store.Inbox
		*Faulty
	}
	faultyLedger struct {
		store.Ledger
		*Faulty
	}
	faultyDegradation struct {
		store.Degradation
		*Faulty
	}
	faultyUsage struct {
		store.Usage
		*Faulty
	}
)

// Accept implements [store.Inbox].
func (f faultyInbox) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	if err := f.before("accept"); err != nil {
		return nil, err
	}
	out, err := f.Inbox.Accept(ctx, node, runs)
	if err := f.after("accept", err); err != nil {
		return nil, err
	}
	return out, nil
}

// Join implements [store.Ledger].
func (f faultyLedger) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	if err := f.before("join"); err != nil {
		return 0, err
	}
	out, err := f.Ledger.Join(ctx, name, lease)
	if err := f.after("join", err); err != nil {
		return 0, err
	}
	return out, nil
}

// Beat implements [store.Ledger].
func (f faultyLedger) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	if err := f.before("beat"); err != nil {
		return store.Beat{}, err
	}
	out, err := f.Ledger.Beat(ctx, node, lease, bundle)
	return out, f.after("beat", err) // a refusal says more than its error
}

// Claim implements [store.Ledger].
func (f faultyLedger) Claim(ctx context.Context, node int64, limit int, bundle string) ([]store.Claimed, error) {
	if err := f.before("claim"); err != nil {
		return nil, err
	}
	out, err := f.Ledger.Claim(ctx, node, limit, bundle)
	if err := f.after("claim", err); err != nil {
		return nil, err
	}
	return out, nil
}

// Commit implements [store.Ledger].
func (f faultyLedger) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	if err := f.before("commit"); err != nil {
		return nil, err
	}
	out, err := f.Ledger.Commit(ctx, node, changes)
	if err := f.after("commit", err); err != nil {
		return nil, err
	}
	return out, nil
}

// Leave implements [store.Ledger].
func (f faultyLedger) Leave(ctx context.Context, node int64, keep []string) error {
	if err := f.before("leave"); err != nil {
		return err
	}
	return f.after("leave", f.Ledger.Leave(ctx, node, keep))
}

// Report implements [store.Degradation].
func (f faultyDegradation) Report(ctx context.Context, node, number int64, tallies []model.Tally) error {
	if err := f.before("report"); err != nil {
		return err
	}
	return f.after("report", f.Degradation.Report(ctx, node, number, tallies))
}

// Deliberate implements [store.Degradation].
func (f faultyDegradation) Deliberate(ctx context.Context, keep time.Duration) (store.Deliberation, error) {
	if err := f.before("deliberate"); err != nil {
		return store.Deliberation{}, err
	}
	out, err := f.Degradation.Deliberate(ctx, keep)
	return out, f.after("deliberate", err)
}

// Conclude implements [store.Degradation].
func (f faultyDegradation) Conclude(ctx context.Context, c store.Conclusion) error {
	if err := f.before("conclude"); err != nil {
		return err
	}
	return f.after("conclude", f.Degradation.Conclude(ctx, c))
}

// Outages implements [store.Degradation].
func (f faultyDegradation) Outages(ctx context.Context) ([]byte, int64, error) {
	if err := f.before("outages"); err != nil {
		return nil, 0, err
	}
	state, revision, err := f.Degradation.Outages(ctx)
	return state, revision, f.after("outages", err)
}

// TakeProbe implements [store.Degradation].
func (f faultyDegradation) TakeProbe(ctx context.Context, outage string, gap time.Duration) (bool, error) {
	if err := f.before("probe"); err != nil {
		return false, err
	}
	taken, err := f.Degradation.TakeProbe(ctx, outage, gap)
	return taken, f.after("probe", err)
}

// AddUsage implements [store.Usage].
func (f faultyUsage) AddUsage(ctx context.Context, uses []store.Use, oldest string) error {
	if err := f.before("usage"); err != nil {
		return err
	}
	return f.after("usage", f.Usage.AddUsage(ctx, uses, oldest))
}
