package sharding

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// ShardPlan starts the transfer of a key to another shard. It refuses a key that cannot move, with
// all reasons. Otherwise it waits for its turn and for its hours.
//
// A waiting transfer holds nothing: other transfers of the key may start before it, and operators
// see what it waits for. If the key is on another shard when its hours come, it is refused, because
// somebody moved the key meanwhile.
//
// A refused transfer fails for good, and has changed nothing. The response has the fields id, map,
// key, source, target, method, state, switched, epoch, window-ms, rows and ended. All handlers of a
// transfer have this response.
//
//	id: plan
//	shard.plan:
//	  map: mail
//	  key: !$ event.payload.id
//	  target: s2
//	  hours: 22-6
type ShardPlan struct {
	step

	// Transfer names the transfer, for handlers of other runs. Its default is the id of the run.
	Transfer string `yaml:"transfer"`

	// Map is the shard map.
	Map string `yaml:"map" required:"true"`

	// Key is the placement to move: a key, or #7 for a slot.
	Key string `yaml:"key" required:"true"`

	// Target is the shard to move it to.
	Target string `yaml:"target" required:"true"`

	// Method is the method of the transfer. stream copies while services write to the key, and blocks writers for
	// milliseconds. lock-copy-switch blocks writers for the whole copy, but needs no logical replication and no primary
	// keys. auto uses stream if possible.
	Method string `yaml:"method" default:"auto" enum:"auto,stream,lock-copy-switch"`

	// PerSource is how many transfers may leave a shard at the same time. Transfers that are only
	// observed for a rollback do not count.
	PerSource int `yaml:"per-source" default:"4" min:"1" max:"64"`

	// PerTarget is how many transfers may go to a shard at the same time, without those that are only observed.
	PerTarget int `yaml:"per-target" default:"8" min:"1" max:"64"`

	// Grace is how long operators can roll the transfer back after the switch, as in shard.retire. 0s
	// keeps nothing for a rollback. Otherwise the way back needs a replication slot of the target until
	// the grace ends.
	Grace time.Duration `yaml:"grace" default:"15m" min:"0s" max:"48h"`

	// Hours are the hours of the day, in UTC, at which a transfer may start, such as 22-6. Its default is any hour.
	Hours string `yaml:"hours"`

	// Deadline is how long the key may be frozen. After it the source thaws by itself, and the handler tries again.
	Deadline time.Duration `yaml:"deadline" default:"500ms" min:"50ms" max:"5m"`

	// Ping is the highest latency of the stream at which the handler freezes the key.
	Ping time.Duration `yaml:"ping" default:"20ms" min:"1ms" max:"1m"`

	// Lock is how long the freeze waits for current writers of the key. Later writers wait behind it.
	Lock time.Duration `yaml:"lock" default:"100ms" min:"1ms" max:"1m"`

	// Size is an estimate of the bytes of the key, as in shard.moves, which counts them while the key moves.
	Size int64 `yaml:"size" default:"0" min:"0"`

	// Rate is the highest speed of the copy, in bytes per second. 0 is no limit.
	Rate int64 `yaml:"rate" default:"0" min:"0"`
}

// lookAgain is how often a transfer that waits for its hours checks for a cancellation.
const lookAgain = time.Minute

// Handle implements [engine.Handler].
func (h *ShardPlan) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	if h.service == nil {
		return model.Result{}, model.Permanent(errNoService)
	}
	m, err := h.service.Map(h.Map)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	wait, err := untilHour(h.Hours, c.Now)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	t := transfers.ShardTransfer{
		ID: transferID(c, h.Transfer), Map: h.Map, Key: h.Key, Target: h.Target, Method: h.Method, Run: c.Run, Hours: h.Hours,
		DeadlineMS: h.Deadline.Milliseconds(), PingMS: h.Ping.Milliseconds(), LockMS: h.Lock.Milliseconds(), Rate: h.Rate,
		OneWay: h.Grace == 0, Size: h.Size,
		State: transfers.TransferWaiting, Step: "plan", Started: c.Now,
	}
	p, err := m.Read(ctx, h.Key)
	if errors.Is(err, shardmap.ErrUnknownKey) {
		return model.Result{}, model.Permanent(err)
	}
	if err != nil {
		return model.Result{}, err
	}
	if m.Declared.Shard(h.Target) == nil {
		return model.Result{}, model.Permanent(fmt.Errorf("map %s: %w %q", m.ID, shardmap.ErrUnknownShard, h.Target))
	}
	t.Source = p.Shard
	by := turn{perSource: h.PerSource, perTarget: h.PerTarget}
	if wait > 0 {
		by.hours = waitsFor("it waits for the hours %s", h.Hours)
	}
	err = h.acquire(ctx, c, m, &t, by)
	var waits waitError
	switch {
	case errors.Is(err, errMoved):
		return model.Result{}, model.Permanent(err)
	case errors.As(err, &waits) && wait > 0:
		return model.Result{}, model.After(min(wait, lookAgain), err)
	case errors.As(err, &waits):
		return model.Result{}, model.After(waits.patience(), err)
	case err != nil:
		return model.Result{}, err
	}
	return h.do(ctx, c, h.Transfer, "plan", h.plan)
}

// acquire lets the transfers of this node ask for lanes one after another. Hundreds of transfers of a
// drain begin at once, and would otherwise spend their time on conflicts.
func (h *ShardPlan) acquire(ctx context.Context, c *engine.Call, m *shardmap.Map, t *transfers.ShardTransfer, by turn) error {
	m.Lanes.Lock()
	defer m.Lanes.Unlock()
	return acquire(ctx, c.Documents, c.Node, t, m.Overlap, by, c.Now)
}

func (h *ShardPlan) plan(ctx context.Context, t *task) error {
	if err := t.preflight(ctx); err != nil {
		return err
	}
	method := t.view().Method
	return t.with(ctx, func(m *transfer.Mover, _ shardmap.Transfer) error {
		var err error
		if method == methodLock {
			err = m.PlanLocked(ctx)
		} else {
			err = m.Plan(ctx)
		}
		if method == "auto" {
			method = methodStream
			if refused, ok := errors.AsType[*transfer.RefusedError](err); ok {
				method = methodLock
				t.call.Log.Info("the stream cannot move a key, so writers wait for the "+
					"copy", "transfer", t.view().ID, "reasons", refused.Reasons)
				err = m.PlanLocked(ctx)
			}
		}
		if err == nil {
			t.change(func(s *transfers.ShardTransfer) { s.Method = method })
		}
		return err
	})
}

// preflight refuses a transfer whose tables would not survive it on one of its shards.
func (t *task) preflight(ctx context.Context) error {
	now := t.view()
	var reasons []string
	for _, shard := range []string{now.Source, now.Target} {
		found, err := t.m.TableErrors(ctx, shard)
		if err != nil {
			return err
		}
		reasons = append(reasons, found...)
	}
	if len(reasons) > 0 {
		return &transfer.RefusedError{Reasons: reasons}
	}
	return nil
}

// untilHour returns the time until one of the hours, or 0 if it is now.
func untilHour(hours string, now time.Time) (time.Duration, error) {
	if hours == "" {
		return 0, nil
	}
	from, to, ok := strings.Cut(hours, "-")
	first, err := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if !ok || err != nil || err2 != nil || first < 0 || first > 23 || last < 0 || last > 24 {
		return 0, fmt.Errorf("want hours such as 22-6, have %q", hours)
	}
	if first == last { // it would wait forever
		return 0, fmt.Errorf("want hours such as 22-6, have %q, which is none of the day: leave it out for any hour", hours)
	}
	now = now.UTC()
	h := now.Hour()
	if first <= last && h >= first && h < last || first > last && (h >= first || h < last) {
		return 0, nil
	}
	next := time.Date(now.Year(), now.Month(), now.Day(), first, 0, 0, 0, time.UTC)
	if !next.After(now) {
		next = next.Add(24 * time.Hour)
	}
	return next.Sub(now), nil
}
