package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"procaas/engine/clock"
)

// ErrNotSwitched is the error of a switch of the map that has not happened, and never will for this
// claim. After any other error the outcome is unknown.
var ErrNotSwitched = errors.New("the map has not switched")

// A Window has the times of a cutover.
type Window struct {
	Attempts int           `json:"attempts"`
	Frozen   time.Duration `json:"frozen"` // from the start of the freeze until the map had switched
	Freeze   time.Duration `json:"freeze"` // part of it: the transaction that freezes
	Drain    time.Duration `json:"drain"`  // part of it: until the target was open and the source sealed
	Switch   time.Duration `json:"switch"` // part of it: the map
	Touched  int           `json:"touched"`
}

// Cutover makes the target the only shard that accepts writes of the key. It calls switchMap, which
// changes the map, as the last step. If the cutover fails before that, the source accepts writes
// again.
func (m *Mover) Cutover(ctx context.Context, switchMap func(context.Context) error) (Window, error) {
	w, err := m.cutover(ctx, switchMap)
	return w, m.spoilt(ctx, err)
}

func (m *Mover) cutover(ctx context.Context, switchMap func(context.Context) error) (Window, error) {
	if err := m.resume(ctx); err != nil {
		return Window{}, err
	}
	if err := m.prepareBack(ctx); err != nil {
		return Window{}, err
	}
	var w Window
	var err error
	for attempt := 1; attempt <= m.limits.Attempts; attempt++ {
		if err := m.ready(ctx); err != nil {
			return w, err
		}
		w, err = m.try(ctx, int64(attempt), switchMap)
		w.Attempts = attempt
		if !errors.Is(err, errTaken) && !errors.Is(err, errRanOut) {
			return w, err
		}
		if waited := clock.Sleep(ctx, time.Duration(attempt)*m.limits.Lock); waited != nil {
			return w, waited
		}
	}
	return w, fmt.Errorf("%w, %d times", err, m.limits.Attempts)
}

// ready waits until a freeze would be short.
func (m *Mover) ready(ctx context.Context) error {
	if err := m.resume(ctx); err != nil {
		return err
	}
	for m.apply.manyTouched() > m.limits.Touched {
		// There are too many rows to compare during the freeze, so compare all rows before it.
		if err := m.Verify(ctx); err != nil {
			return err
		}
	}
	return m.gate(ctx)
}

// try does one cutover. It returns errTaken or errRanOut if another try is worthwhile.
func (m *Mover) try(ctx context.Context, attempt int64, switchMap func(context.Context) error) (Window, error) {
	w := Window{Touched: m.apply.manyTouched()}
	token := fmt.Sprintf("freeze.%d.%d", m.next, attempt)
	if err := m.at("freeze"); err != nil {
		return w, err
	}
	began := time.Now()
	if err := m.freeze(ctx, attempt, token, m.limits.Freeze); err != nil {
		return w, err
	}
	w.Freeze = time.Since(began)
	err := m.handOver(ctx, &w, began, func() error { return m.drain(ctx, attempt, token) }, switchMap)
	return w, err
}

// handOver gives the frozen key to the target. rest brings the target up to date and seals the
// source. w gets the times since the freeze began.
func (m *Mover) handOver(ctx context.Context, w *Window, began time.Time, rest func() error, switchMap func(context.Context) error) error {
	if err := m.at("frozen"); err != nil {
		return err
	}
	err := rest()
	w.Drain = time.Since(began) - w.Freeze
	if err != nil {
		return m.thaw(ctx, err)
	}
	if err := m.at("sealed"); err != nil {
		return err
	}
	err = switchMap(ctx)
	w.Frozen = time.Since(began)
	w.Switch = w.Frozen - w.Drain - w.Freeze
	// Only this error means that the map will never switch for this claim, so the source may have
	// its key back.
	if errors.Is(err, ErrNotSwitched) {
		return m.thaw(ctx, err)
	}
	if err != nil {
		// The map may have switched, so the source stays sealed until the map answers.
		return fmt.Errorf("%w: %w", errSwitchMap, err)
	}
	return m.at("switched")
}

// drain applies the stream up to the barrier and opens the target in the same transaction, and
// seals the source meanwhile. If the target has standbys, it waits until one of them has
// everything. What the source gives away must survive the loss of the target's master.
func (m *Mover) drain(ctx context.Context, attempt int64, token string) error {
	limited, cancel := context.WithTimeoutCause(ctx, m.limits.Freeze, errRanOut)
	defer cancel()
	sealed := make(chan error, 1)
	standbys, err := m.standbys(limited)
	if err != nil {
		return err
	}
	// Without the timeout, because a seal that is cut off may still hold.
	seal := func() { sealed <- m.seal(ctx, m.source, attempt, 0) }
	join := func(ctx context.Context) error {
		if err := m.recheck(ctx); err != nil {
			return err
		}
		if err := m.at("drained"); err != nil {
			return err
		}
		// In the transaction that applies the last change, so that the target becomes open and
		// complete at once. No client can write there yet, because the map hands its epoch out only
		// after the switch.
		if err := m.fenceTarget(ctx, m.target, "active"); err != nil {
			return err
		}
		if !standbys {
			go seal()
		}
		return nil
	}
	began := false
	err = m.until(limited, goal{token: token, join: func(ctx context.Context) error {
		err := join(ctx)
		began = err == nil
		return err
	}})
	if began && standbys {
		if err == nil {
			err = m.replicated(limited)
		}
		began = err == nil
		if began {
			go seal()
		}
	}
	if began {
		if other := <-sealed; err == nil {
			err = other
		}
	}
	if err == nil {
		err = m.at("opened")
	}
	if err != nil && errors.Is(context.Cause(limited), errRanOut) && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", errRanOut, err)
	}
	return err
}

// thaw returns the key to the source after a cutover that has not switched, and returns reason.
// Errors of the hook undo nothing.
func (m *Mover) thaw(ctx context.Context, reason error) error {
	if isCrash(reason) {
		return reason
	}
	if err := m.at("thaw"); err != nil {
		return errors.Join(reason, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := m.reconnect(ctx); err != nil {
		// An unsealed freeze ends by itself, and the next claim ends the others.
		return errors.Join(reason, err)
	}
	if err := m.Claim(ctx); err != nil {
		return errors.Join(reason, err)
	}
	return errors.Join(reason, m.fenceTarget(ctx, m.target, "closed"))
}

// reconnect replaces connections that a deadline has ended.
func (m *Mover) reconnect(ctx context.Context) error {
	m.stop()
	if !m.source.IsClosed() && !m.target.IsClosed() {
		return nil
	}
	err := m.Close()
	_ = err // they were closed already, or are unusable
	m.prepared = map[string]string{}
	for range 50 {
		if m.source, err = connect(ctx, m.spec.Source, m.spec.SourceShard); err != nil {
			return err
		}
		if m.target, err = connect(ctx, m.spec.Target, m.spec.TargetShard); err != nil {
			return err
		}
		if err = m.lock(ctx); !errors.Is(err, ErrBusy) {
			return err
		}
		// The server has not noticed yet that the old connection is gone.
		if err := errors.Join(m.Close(), clock.Sleep(ctx, 100*time.Millisecond)); err != nil {
			return err
		}
	}
	return err
}

// prepareBack creates the slot for the way back, before the target accepts any writes. What is
// applied before the switch comes back as echoes.
func (m *Mover) prepareBack(ctx context.Context) error {
	if m.back || m.spec.OneWay {
		return nil
	}
	if err := m.at("reverse"); err != nil {
		return err
	}
	// A slot from an earlier attempt is as good: since then it has only echoes, which are skipped.
	if _, _, ok, err := positionOf(ctx, m.source, m.against()); err != nil || ok {
		return err
	}
	if err := dropSlot(ctx, m.target, m.spec.backSlot()); err != nil {
		return err
	}
	if err := m.publish(ctx, m.target, m.spec.backSlot(), m.direction()); err != nil {
		return err
	}
	var lsn pglogrepl.LSN
	conn, lsn, _, err := m.createSlot(ctx, m.spec.Target, m.spec.backSlot(), false)
	if err != nil {
		return err
	}
	closeNow(conn)
	_, err = m.source.Exec(ctx, putPosition, m.against(), lsn, stepAnalyzed)
	return err
}

// Retire records in the source's fence where the key has gone. Call it only after the map has
// switched.
func (m *Mover) Retire(ctx context.Context) error {
	var done bool
	err := m.source.QueryRow(ctx, callFence, m.spec.Map, m.spec.Key, m.next, "moved", m.spec.TargetShard, m.owner).Scan(&done)
	if err != nil {
		return fmt.Errorf("fence of shard %s: %w", m.spec.SourceShard, err)
	}
	// A later epoch means that the key has come back since.
	return m.at("retired")
}

// Settle drops what only the way to the target needed, after the switch. A slot without a reader
// would keep the source's log, and use up one of its few slots, as long as a rollback is possible.
// The mover is one of [OpenBack].
func (m *Mover) Settle(ctx context.Context) error {
	return m.dropStream(ctx, m.target, m.spec.slot())
}
