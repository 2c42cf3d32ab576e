package sharding

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/transfers"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

//go:embed shard_plan.go
var shardPlanSource string

// ShardPlan begins the transfer of a key to another shard: it refuses what could not be
// moved, with all reasons, and waits for its turn and for the night.
//
// While it waits it holds nothing: other transfers of the key begin before it, and
// operators see what it waits for. A transfer that finds its key on another shard when
// its hours have come is refused: somebody has decided otherwise meanwhile.
//
// A transfer that is refused fails for good, and has changed nothing. Its response has
// the fields id, map, key, source, target, method, state, switched, epoch, window-ms,
// rows and ended, as that of each handler of a transfer.
//
//	id: plan
//	shard.plan:
//	  map: mail
//	  key: !$ event.payload.id
//	  target: s2
//	  hours: 22-6
type ShardPlan struct {
	step

	// Transfer names the transfer, for handlers of other runs; the id of the run when it
	// is left out.
	Transfer string `yaml:"transfer"`

	// Map is the shard map.
	Map string `yaml:"map" required:"true"`

	// Key is the placement that moves: a key, or #7 for a slot.
	Key string `yaml:"key" required:"true"`

	// Target is the shard that it moves to.
	Target string `yaml:"target" required:"true"`

	// Method says how. stream copies while the key is written to, and holds writers
	// back for milliseconds; lock-copy-switch for as long as the copy takes, but needs no
	// logical replication and no primary keys. auto takes stream where it can.
	Method string `yaml:"method" default:"auto" enum:"auto,stream,lock-copy-switch"`

	// PerSource bounds how many transfers may leave a shard at once. Those that are only
	// observed, and may be rolled back, do not count.
	PerSource int `yaml:"per-source" default:"4" min:"1" max:"64"`

	// PerTarget bounds how many transfers may go to a shard at once, without those that
	// are only observed.
	PerTarget int `yaml:"per-target" default:"8" min:"1" max:"64"`

	// Hours are those of the day, in UTC, at which a transfer may begin, such as 22-6; at
	// any when it is left out.
	Hours string `yaml:"hours"`

	// Deadline is how long the key may be frozen before the source thaws by itself, and
	// it is tried again.
	Deadline time.Duration `yaml:"deadline" default:"500ms" min:"50ms" max:"5m"`

	// Ping is how quick the way through the stream has to be before the key is frozen.
	Ping time.Duration `yaml:"ping" default:"20ms" min:"1ms" max:"1m"`

	// Lock is how long the freeze waits for the writers of the key that are under way,
	// and lets others wait behind it.
	Lock time.Duration `yaml:"lock" default:"100ms" min:"1ms" max:"1m"`

	// Rate bounds the copy, in bytes a second; 0 is no bound.
	Rate int64 `yaml:"rate" default:"0" min:"0"`
}

// lookAgain is how often a transfer that waits for its hours looks whether it has been cancelled.
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
	by, again := turn{perSource: h.PerSource, perTarget: h.PerTarget}, busyDelay
	if wait > 0 {
		by.hours, again = waitsFor("it waits for the hours %s", h.Hours), min(wait, lookAgain)
	}
	err = acquire(ctx, c.Documents, c.Node, &t, m.Overlap, by, c.Now)
	var waits waitError
	switch {
	case errors.Is(err, errMoved):
		return model.Result{}, model.Permanent(err)
	case errors.As(err, &waits):
		return model.Result{}, model.After(again, err)
	case err != nil:
		return model.Result{}, err
	}
	return h.do(ctx, c, h.Transfer, "plan", h.plan)
}

func (h *ShardPlan) plan(ctx context.Context, t *task) error {
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
				t.call.Log.Info("the stream cannot move a key, so writers wait for the copy", "transfer", t.view().ID, "reasons", refused.Reasons)
				err = m.PlanLocked(ctx)
			}
		}
		if err == nil {
			t.change(func(s *transfers.ShardTransfer) { s.Method = method })
		}
		return err
	})
}

// untilHour tells how long it is until one of the hours; 0 when it is now.
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
	if first == last { // it would wait for ever
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
