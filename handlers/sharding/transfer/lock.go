package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
)

const (
	// holdFor is how long the key stays frozen if the process that copies dies.
	holdFor = 10 * time.Second

	// holdEvery is how often the freeze is extended.
	holdEvery = time.Second
)

// PlanLocked is Plan for LockCopySwitch, which needs no stream.
func (m *Mover) PlanLocked(ctx context.Context) error { return final(m.planLocked(ctx)) }

func (m *Mover) planLocked(ctx context.Context) error {
	reasons, err := m.misfits(ctx, func(*shape) []string { return nil })
	if err != nil {
		return err
	}
	more, err := m.enrolled(ctx)
	if err != nil {
		return err
	}
	reasons = append(reasons, more...)
	if len(reasons) > 0 {
		return &RefusedError{reasons}
	}
	if err := m.load(ctx); err != nil {
		return err
	}
	return m.nothingLeft(ctx)
}

// LockCopySwitch moves the key while nobody writes to it: it is frozen during the whole copy. It
// needs neither logical replication nor primary keys.
func (m *Mover) LockCopySwitch(ctx context.Context, switchMap func(context.Context) error) (Window, error) {
	w, err := m.lockCopySwitch(ctx, switchMap)
	return w, final(err)
}

func (m *Mover) lockCopySwitch(ctx context.Context, switchMap func(context.Context) error) (Window, error) {
	if err := m.load(ctx); err != nil {
		return Window{}, err
	}
	if err := m.clear(ctx); err != nil {
		return Window{}, err
	}
	w, attempt := Window{Attempts: 1}, int64(1)
	if err := m.at("freeze"); err != nil {
		return w, err
	}
	began := time.Now()
	for {
		err := m.freeze(ctx, attempt, "lock", max(holdFor, m.limits.Freeze))
		if err == nil {
			break
		}
		attempt++
		if !errors.Is(err, errTaken) || attempt > int64(m.limits.Attempts) {
			return w, err
		}
		if err := clock.Sleep(ctx, time.Duration(attempt)*m.limits.Lock); err != nil {
			return w, err
		}
		began = time.Now()
	}
	w.Attempts, w.Freeze = int(attempt), time.Since(began)
	err := m.handOver(ctx, &w, began, func() error { return m.copyFrozen(ctx, attempt) }, switchMap)
	return w, err
}

// copyFrozen copies and compares while a second connection keeps the key frozen.
func (m *Mover) copyFrozen(ctx context.Context, attempt int64) error {
	// The mover's connection is busy with the copy.
	keeper, err := connect(ctx, m.spec.Source, m.spec.SourceShard)
	if err != nil {
		return err
	}
	defer func() { _ = keeper.Close(context.WithoutCancel(ctx)) }()
	// If the freeze was not extended in time, writers are in again, and the copy is useless.
	held, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(holdEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			if err := m.seal(held, keeper, attempt, max(holdFor, m.limits.Freeze)); err != nil {
				cancel(err)
				return
			}
		}
	}()
	err = m.copySnapshot(held)
	close(stop)
	<-done
	if cause := context.Cause(held); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	if err != nil {
		return err
	}
	if err := m.fenceTarget(ctx, m.target, "active"); err != nil {
		return err
	}
	if standbys, err := m.standbys(ctx); err != nil {
		return err
	} else if standbys {
		if err := m.replicated(ctx); err != nil {
			return err
		}
	}
	// Forever, and last: only the switch is left.
	return m.seal(ctx, m.source, attempt, 0)
}

func (m *Mover) copySnapshot(ctx context.Context) error {
	if err := m.at("copy"); err != nil {
		return err
	}
	if err := m.replica(ctx, m.target); err != nil {
		return err
	}
	progress := &copied{mover: m, total: m.rowsOf(ctx), rate: m.limits.BytesRate, began: time.Now()}
	return pgx.BeginTxFunc(ctx, m.source, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(read pgx.Tx) error {
		err := pgx.BeginFunc(ctx, m.target, func(tx pgx.Tx) error {
			// In one transaction, so that an interrupted copy leaves nothing.
			for _, t := range m.tables {
				if err := m.copyTable(ctx, read.Conn(), tx.Conn(), t, progress); err != nil {
					return fmt.Errorf("copy table %s: %w", t.title(), err)
				}
			}
			return m.at("copied")
		})
		if err != nil {
			return err
		}
		for _, t := range m.tables {
			if _, err := m.target.Exec(ctx, "analyze "+t.quoted()); err != nil {
				return fmt.Errorf("analyze table %s: %w", t.title(), err)
			}
		}
		if err := m.at("verify"); err != nil {
			return err
		}
		if err := m.nothingLeft(ctx); err != nil {
			return err
		}
		_, err = m.compare(ctx, read.Conn())
		return err
	})
}
