package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// These are the methods to move a key.
const (
	methodStream = "stream"
	methodLock   = "lock-copy-switch"
)

const (
	// tellEvery is how often a step saves its progress.
	tellEvery = time.Second

	// aliveEvery is how often it does so if nothing has changed.
	aliveEvery = time.Minute

	// differMost is how many copies of a transfer may differ from the source. One may by chance, such
	// as after a write past the fence. A third one shows that something changes rows as they arrive.
	differMost = 3

	// busyDelay is how long a step waits for another process to release the transfer.
	busyDelay = 2 * time.Second
)

// A step is what the handler types of transfers share.
type step struct {
	service *shardmap.Service
	limits  *transfer.Limits // replace the defaults, for tests
	hook    func(point string) error
}

func (s *step) bind(service *shardmap.Service, o BindOptions) {
	s.service, s.limits, s.hook = service, o.Limits, o.Hook
}

// BindOptions changes how transfers work.
type BindOptions struct {
	// Limits bound the steps. Nil means the defaults.
	Limits *transfer.Limits

	// Hook is called at each of [transfer.Points]. Its error ends the step there, like the death of
	// the process.
	Hook func(point string) error
}

// Bind makes the handler types shard.… use a service.
func Bind(types []engine.HandlerType, service *shardmap.Service, o BindOptions) []engine.HandlerType {
	out := make([]engine.HandlerType, len(types))
	for i, t := range types {
		out[i] = t
		if !strings.HasPrefix(t.Name, "shard.") {
			continue
		}
		out[i].New = func() engine.Handler {
			h := t.New()
			if b, ok := h.(interface {
				bind(*shardmap.Service, BindOptions)
			}); ok {
				b.bind(service, o)
			}
			return h
		}
	}
	return out
}

// errNoService is the error of a node without shard maps.
var errNoService = errors.New("this node keeps no shard maps: they need a store in PostgreSQL, and shard-maps: in the files")

// errOrdered ends a step because of an operator's order for its transfer.
var errOrdered = errors.New("an operator has given an order")

// A task is one call of a handler for one transfer.
type task struct {
	step
	call *engine.Call
	m    *shardmap.Map

	saving sync.Mutex // serializes writes, so that later states are written later

	mu    sync.Mutex // guards the following
	t     transfers.ShardTransfer
	dirty bool
}

// transferID returns the id of a transfer: that of the run, unless the author sets another.
func transferID(c *engine.Call, id string) string {
	if id == "" {
		id = c.Run
	}
	return strings.ReplaceAll(strings.ToLower(id), "-", "_")
}

// do runs a step of a transfer as operators order it, and saves its progress.
func (s *step) do(ctx context.Context, c *engine.Call, id, name string, work func(context.Context, *task) error) (model.Result, error) {
	t, err := s.task(ctx, c, id)
	if err != nil {
		return model.Result{}, err
	}
	// An order interrupts the step and is read here. The step starts again unless the order says
	// otherwise.
	for !transfers.TransferEnded(t.t.State) {
		order, version, err := t.order(ctx)
		if err != nil {
			return model.Result{}, err
		}
		if order == transfers.OrderPause && !t.t.Switched {
			if err := t.pause(ctx, version); err != nil {
				return model.Result{}, err
			}
			continue
		}
		if order == transfers.OrderCancel && !t.t.Switched {
			return t.result(t.giveUp(ctx, transfers.TransferCancelled))
		}
		err = t.work(ctx, name, version, work)
		if errors.Is(err, errOrdered) && ctx.Err() == nil {
			continue
		}
		return t.result(err)
	}
	return t.result(nil)
}

// task returns the transfer of a call.
func (s *step) task(ctx context.Context, c *engine.Call, id string) (*task, error) {
	t := &task{step: *s, call: c}
	if s.service == nil {
		return t, model.Permanent(errNoService)
	}
	found, err := transfers.ReadShardTransfer(ctx, c.Documents, transferID(c, id))
	if errors.Is(err, store.ErrNotFound) {
		return t, model.Permanent(fmt.Errorf("%w: shard.plan begins it", err))
	}
	if err != nil {
		return t, err
	}
	t.t = found
	if t.m, err = s.service.Map(found.Map); err != nil {
		return t, model.Permanent(err)
	}
	return t, nil
}

// result returns what expressions read about a transfer, and classifies errors.
func (t *task) result(err error) (model.Result, error) {
	var refused *transfer.RefusedError
	switch {
	case errors.As(err, &refused):
		return model.Result{}, model.Permanent(err)
	case errors.Is(err, transfer.ErrBusy):
		return model.Result{}, model.After(busyDelay, err)
	case err != nil:
		return model.Result{}, err
	}
	now := t.view()
	return model.Result{Response: map[string]any{
		"id": now.ID, "map": now.Map, "key": now.Key, "source": now.Source, "target": now.Target, "method": now.Method,
		"state": now.State, "switched": now.Switched, "epoch": int(now.Next), "window-ms": now.WindowMS, "rows": int(now.Rows),
		"ended": transfers.TransferEnded(now.State),
	}}, nil
}

func (t *task) view() transfers.ShardTransfer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.t
}

// change changes the visible state. save writes it.
func (t *task) change(f func(*transfers.ShardTransfer)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.t)
	t.dirty = true
}

func (t *task) save(ctx context.Context) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	// Clean from now on: a change during the write makes it dirty again.
	t.mu.Lock()
	value, err := json.Marshal(t.t)
	t.dirty = false
	lane := t.t.Lane
	t.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = t.call.Documents.WriteDocuments(ctx, t.call.Node,
		[]store.DocumentWrite{{Kind: transfers.DocShardTransfer, Name: lane, Version: store.AnyVersion, Value: value}}, nil)
	if err != nil {
		return fmt.Errorf("write down transfer %s: %w", t.t.ID, err)
	}
	return nil
}

func (t *task) set(ctx context.Context, f func(*transfers.ShardTransfer)) error {
	t.change(f)
	return t.save(ctx)
}

// work runs a step, saves its progress, and interrupts it at an operator's order.
func (t *task) work(ctx context.Context, name string, version int64, work func(context.Context, *task) error) error {
	err := t.set(ctx, func(s *transfers.ShardTransfer) {
		s.Step = name
		s.Rows = 0
		s.Total = 0
		s.Percent = 0
		if s.State == transfers.TransferWaiting || s.State == transfers.TransferPaused {
			s.State = transfers.TransferRunning
		}
	})
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { t.tell(inner) })
	beside.Go(func() {
		for inner.Err() == nil { // continue while the store is away for a moment
			if _, err := store.AwaitDocument(inner, t.call.Documents, transfers.DocShardOrder, t.t.Lane, version); err == nil {
				cancel(errOrdered)
				return
			}
			select {
			case <-inner.Done():
			case <-time.After(tellEvery):
			}
		}
	})
	err = work(inner, t)
	if err != nil && errors.Is(context.Cause(inner), errOrdered) {
		err = errors.Join(errOrdered, err)
	}
	cancel(nil)
	beside.Wait()
	// The node stops or has lost its lease. The next process saves the progress.
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	var refused *transfer.RefusedError
	if differs, ok := errors.AsType[*transfer.DivergedError](err); ok && !t.view().Switched {
		t.change(func(s *transfers.ShardTransfer) { s.Differed++ })
		if n := t.view().Differed; n >= differMost {
			err = &transfer.RefusedError{Reasons: []string{fmt.Sprintf("table %s differs between source and target after %d copies: %s; "+
				"something on shard %s changes rows as they arrive, such as a trigger that is ENABLE ALWAYS: "+
				"procaas shard check %s names it; mend it, then move the key again", differs.Table, n, differs.Detail, t.view().Target, t.view().Map)}}
		}
	}
	switch {
	case errors.As(err, &refused) && !t.view().Switched:
		t.change(func(s *transfers.ShardTransfer) { s.Error = err.Error() })
		return errors.Join(err, t.giveUp(ctx, transfers.TransferFailed))
	case err != nil && !errors.Is(err, errOrdered):
		return errors.Join(err, t.set(ctx, func(s *transfers.ShardTransfer) { s.Error = err.Error() }))
	case err == nil:
		return t.set(ctx, func(s *transfers.ShardTransfer) { s.Error, s.Percent = "", 100 })
	}
	return err
}

// tell saves the progress of a step now and then.
func (t *task) tell(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t.mu.Lock()
			dirty := t.dirty
			t.mu.Unlock()
			if !dirty && now.Sub(last) < aliveEvery {
				continue
			}
			if err := t.save(ctx); err != nil && ctx.Err() == nil {
				t.call.Log.Warn("the progress of a transfer cannot be written down", "transfer", t.t.ID, "error", err)
			}
			last = now
		}
	}
}

// order reads operators' order for the transfer, and its version.
func (t *task) order(ctx context.Context) (want string, version int64, err error) {
	d, err := t.call.Documents.Document(ctx, transfers.DocShardOrder, t.t.Lane)
	if errors.Is(err, store.ErrNotFound) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	var o transfers.ShardOrder
	if err := json.Unmarshal(d.Value, &o); err != nil {
		return "", d.Version, fmt.Errorf("order to transfer %s: %w", t.t.ID, err)
	}
	// Lanes are reused, and orders are documents of the lane.
	if o.Transfer != t.t.ID {
		return "", d.Version, nil // for the transfer before in this lane
	}
	return o.Want, d.Version, nil
}

// pause waits for the next order. Nothing is frozen meanwhile. The replication slot keeps the
// source's log.
func (t *task) pause(ctx context.Context, version int64) error {
	if err := t.set(ctx, func(s *transfers.ShardTransfer) { s.State = transfers.TransferPaused }); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { t.tell(inner) })
	_, err := store.AwaitDocument(ctx, t.call.Documents, transfers.DocShardOrder, t.t.Lane, version)
	cancel()
	beside.Wait()
	return err
}

// begin takes the key over for this process, which invalidates other processes. If the map has
// already switched, it notes that, and there is no claim.
func (t *task) begin(ctx context.Context) (shardmap.Transfer, error) {
	now := t.view()
	tr, err := t.m.BeginTransfer(ctx, shardmap.Begin{Key: now.Key, Target: now.Target, Transfer: now.ID, Force: now.Step != "plan"})
	switch {
	case errors.Is(err, shardmap.ErrBusy), errors.Is(err, shardmap.ErrClosed), errors.Is(err, shardmap.ErrUnknownKey),
		errors.Is(err, shardmap.ErrUnknownShard),
		errors.Is(err, shardmap.ErrKey):
		return tr, &transfer.RefusedError{Reasons: []string{err.Error()}}
	case err != nil:
		return tr, err
	case tr.Switched:
		return tr, t.set(ctx, func(s *transfers.ShardTransfer) { s.Switched, s.Next = true, tr.Next })
	}
	return tr, nil
}

// open connects to the shards for a transfer.
func (t *task) open(ctx context.Context, claim transfer.Claim, back bool) (*transfer.Mover, error) {
	spec, err := t.spec(ctx)
	if err != nil {
		return nil, err
	}
	if back {
		return transfer.OpenBack(ctx, spec, claim)
	}
	return transfer.Open(ctx, spec, claim)
}

// spec returns what to move.
func (t *task) spec(ctx context.Context) (transfer.Spec, error) {
	now := t.view()
	spec := transfer.Spec{
		ID: now.ID, Map: now.Map, Key: now.Key, SourceShard: now.Source, TargetShard: now.Target, Hook: t.hook, OneWay: now.OneWay,
		Report: t.report,
	}
	spec.Limits = transfer.Limits{
		Freeze: time.Duration(now.DeadlineMS) * time.Millisecond, Ping: time.Duration(now.PingMS) * time.Millisecond,
		Lock: time.Duration(now.LockMS) * time.Millisecond, BytesRate: now.Rate,
	}
	if t.limits != nil {
		spec.Limits = *t.limits
	}
	for _, side := range []struct {
		shard string
		dsn   *string
	}{{now.Source, &spec.Source}, {now.Target, &spec.Target}} {
		hosts, err := t.m.Hosts(side.shard)
		if err != nil {
			return spec, &transfer.RefusedError{Reasons: []string{err.Error()}}
		}
		if *side.dsn, err = t.m.AdminDSN(hosts, "read-write"); err != nil {
			return spec, err
		}
	}
	spec.Stays, spec.Elsewhere = t.m.Declared.Stays, t.m.Elsewhere()
	for _, table := range t.m.Declared.Tables {
		spec.Listed = append(spec.Listed, table.Table)
		rows, ok, err := t.m.Rows(ctx, table, now.Key)
		if err != nil {
			return spec, err
		}
		if ok {
			spec.Tables = append(spec.Tables, rows)
		}
	}
	return spec, nil
}

// report records the progress of a mover.
func (t *task) report(p transfer.Progress) {
	t.change(func(s *transfers.ShardTransfer) {
		s.Rows = p.Rows
		s.Total = p.Total
		s.Lag = p.Lag
		s.Percent = p.Percent
		s.Bytes = max(s.Bytes, p.Bytes)
	})
}

// with takes the key over, and runs work with a mover for it. It does nothing if the map has
// switched.
func (t *task) with(ctx context.Context, work func(*transfer.Mover, shardmap.Transfer) error) (err error) {
	if t.view().Switched {
		return nil
	}
	tr, err := t.begin(ctx)
	if err != nil || tr.Switched {
		return err
	}
	m, err := t.open(ctx, transfer.Claim{Owner: tr.Owner, Epoch: tr.Epoch, Next: tr.Next}, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Claim(ctx); err != nil {
		return err
	}
	return work(m, tr)
}

// switcher returns the compare-and-swap of the map. If the outcome is unknown, it asks the map,
// again and again until the map answers.
func (t *task) switcher(tr shardmap.Transfer) func(context.Context) error {
	return func(ctx context.Context) error {
		err := t.m.Switch(ctx, tr)
		for err != nil {
			if errors.Is(err, shardmap.ErrLost) {
				return fmt.Errorf("%w: %w", transfer.ErrNotSwitched, err)
			}
			asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			p, readErr := t.m.Read(asked, tr.Key)
			cancel()
			if readErr == nil && p.Shard == tr.Target && p.Epoch == tr.Next {
				return nil
			}
			if readErr == nil {
				// It may still be in flight. Invalidate the token, and see which came first.
				err = t.m.Abort(context.WithoutCancel(ctx), tr)
				if err == nil {
					return transfer.ErrNotSwitched
				}
				if errors.Is(err, shardmap.ErrLost) {
					if p, err := t.m.Read(ctx, tr.Key); err == nil && p.Shard == tr.Target && p.Epoch == tr.Next {
						return nil
					}
				}
			}
			if !clock.Pause(ctx, 50*time.Millisecond) {
				return err
			}
		}
		return nil
	}
}

// giveUp undoes a transfer that has not switched: the source keeps the key, and the target keeps
// nothing.
func (t *task) giveUp(ctx context.Context, state string) error {
	tr, err := t.begin(ctx)
	var refused *transfer.RefusedError
	if errors.As(err, &refused) {
		// Another transfer has the key, or none has: there is nothing to undo.
		return t.set(ctx, func(s *transfers.ShardTransfer) { s.State = state })
	}
	if err != nil {
		return err
	}
	if tr.Switched {
		return fmt.Errorf("%w: it has switched", transfers.ErrShardOrder)
	}
	// Before the token is released: until then no other transfer can get the key, whose rows this
	// deletes on the target.
	if t.view().Step != "plan" { // which has changed no rows, and may refuse tables that take no writes
		if err := t.undo(ctx, tr); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	if err := t.m.Abort(ctx, tr); err != nil {
		return err
	}
	return t.set(ctx, func(s *transfers.ShardTransfer) { s.State = state })
}

func (t *task) undo(ctx context.Context, tr shardmap.Transfer) (err error) {
	m, err := t.open(ctx, transfer.Claim{Owner: tr.Owner, Epoch: tr.Epoch, Next: tr.Next}, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return m.Undo(ctx)
}
