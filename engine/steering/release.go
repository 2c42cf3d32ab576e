package steering

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/stats"
)

// This file wakes runs that wait in the store for what has held them back. It lets them go on
// gently: they are many, and come at once. Handlers that are not critical would be left out
// then, because their services have more to do than they bear, in a queue that only the hold has made.

// How runs are woken.
const (
	releaseMost = 2000                  // in one transaction
	SoonestBeat = 10 * time.Millisecond // when there is more to do before the next beat

	// liftLeast is how often at least one run goes on, however busy its services are: new runs must
	// not keep old ones back forever.
	liftLeast = time.Second

	// maxLifted bounds the causes that are remembered.
	maxLifted = 1000
)

// A caller decides how many runs are woken that wait in the store.
type caller struct {
	st       *Steering
	controls *guard.Controls
	now      time.Time
	rivals   map[string]int // causes for a gate

	// busy tells that runs wait for a gate that lets calls through, so that there
	// will be room for more of them soon.
	busy bool

	ends time.Time // when the first control ends for which runs wait; zero for none
}

// caller prepares to wake runs that wait for these causes.
func (st *Steering) caller(causes []string) *caller {
	c := &caller{st: st, controls: st.Settings.Controls(), now: st.Clock.Now(), rivals: map[string]int{}}
	for _, cause := range causes {
		for part := range strings.SplitSeq(cause, ",") {
			if name, _, ok := guard.GateOf(part); ok {
				c.rivals[name]++
			}
		}
	}
	return c
}

// wakes returns how many of the runs that wait for a cause may go on. What it names is lifted
// when it does not hold them back any more: then there may be many of them.
func (c *caller) wakes(cause string) (most int, lifted bool) {
	for part := range strings.SplitSeq(cause, ",") {
		if hash, ok := strings.CutPrefix(part, stats.CauseUnserved); ok {
			if hash != c.st.Library.Present().Bundle.Hash {
				return releaseMost, true
			}
			continue
		}
		if path, ok := strings.CutSuffix(part, core.CauseRetry); ok {
			if s := c.step(path); s != nil && c.isOff(s) {
				return c.bears(path, ""), true
			}
			continue
		}
		name, path, ok := guard.GateOf(part)
		switch {
		case ok && !c.waits(name, path):
			return c.bears(path, ""), true
		case ok:
			room, moves := c.st.Guard.Gate(name).Appetite(c.now)
			if c.busy = c.busy || moves; room > 0 {
				most = max(most, min(room/c.rivals[name], c.bears(path, name)), 1)
			}
		case !c.controls.Stands(part, c.now), c.nothingOn(part):
			path, _, _ := strings.Cut(part, " ")
			return c.bears(path, ""), true
		default:
			c.expect(part)
		}
	}
	return most, false
}

// nothingOn reports whether all handlers are left out below the path that a cause names: then no run has to wait there.
func (c *caller) nothingOn(part string) bool {
	path, _, _ := strings.Cut(part, " ")
	steps := c.st.Library.Present().Under(path)
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s *planner.Step) bool { return !c.isOff(s) })
}

// expect notes when a control ends that holds runs back: nobody else tells of that.
func (c *caller) expect(part string) {
	path, _, _ := strings.Cut(part, " ")
	l := c.controls.ByPath[path]
	if l == nil {
		return
	}
	end := l.LimitUntil
	if part == path+guard.CauseHold {
		end = l.Until
	}
	if end != nil && (c.ends.IsZero() || end.Before(c.ends)) {
		c.ends = *end
	}
}

// IsBusy reports whether a cause names a gate that lets calls through.
func (st *Steering) IsBusy(cause string) bool {
	c := st.caller([]string{cause})
	for part := range strings.SplitSeq(cause, ",") {
		if name, path, ok := guard.GateOf(part); ok && c.waits(name, path) {
			if _, moves := c.st.Guard.Gate(name).Appetite(c.now); moves {
				return true
			}
		}
	}
	return false
}

// waits reports whether a handler has to wait at a gate at all. Runs whose handler is
// out of the flow by now need not.
func (c *caller) waits(name, path string) bool {
	s := c.step(path)
	if s == nil || c.isOff(s) {
		return false
	}
	return name == path && s.Handler.MaxInFlight > 0 || s.Service != nil && name == s.Service.ID
}

// step finds a handler of the present definition, or its compensation; nil when there
// is none.
func (c *caller) step(path string) *planner.Step {
	plan := c.st.Library.Present().ByID[model.PipelineOf(path)]
	if plan == nil {
		return nil
	}
	if s := plan.Step(path); s != nil {
		return s
	}
	handler, undoes := strings.CutSuffix(path, model.UndoPath)
	if s := plan.Step(handler); undoes && s != nil {
		return s.Undo
	}
	return nil
}

// isOff reports whether a handler is left out at present. A compensation never is: what
// has been done has to be undone, whoever has switched the handler off since.
func (c *caller) isOff(s *planner.Step) bool {
	_, off := c.st.Off(s, c.controls, c.now)
	return off && !s.Undoes
}

// bears returns how many more runs may go on from a path at once, by what lies ahead of them
// besides one gate. It is half of what there is room for, since those on their way are not
// seen yet.
func (c *caller) bears(path, besides string) int {
	room := math.MaxInt
	for _, s := range c.st.Library.Present().Ahead(path) {
		if c.isOff(s) {
			continue
		}
		room = min(room, c.st.Guard.Spare(s, besides, c.controls, c.now))
	}
	if room > releaseMost {
		return releaseMost
	}
	return (room + 1) / 2
}

// A Releaser wakes runs for a member of the cluster. It is for one goroutine.
type Releaser struct {
	*Steering
	log    *slog.Logger
	nudge  func()               // told when there are runs to claim
	lifted map[string]time.Time // when a run went on that had waited for a cause
}

// NewReleaser makes the Releaser of a member. It calls nudge when it has woken runs.
func (st *Steering) NewReleaser(log *slog.Logger, nudge func()) *Releaser {
	return &Releaser{Steering: st, log: log, nudge: nudge, lifted: map[string]time.Time{}}
}

// Release wakes runs that are parked for what does not hold them back any more, and
// as many as there is room for of those that wait for a gate. Any node may do it,
// whoever parked them, and whenever the control was lifted. Soon is when to look
// again; 0 for whenever the next beat comes.
func (r *Releaser) Release(ctx context.Context, causes []string) (soon time.Duration) {
	c := r.caller(causes)
	for _, cause := range causes {
		most, lifted := c.wakes(cause)
		if lifted {
			most = r.least(cause, most)
			c.busy = true // there may be more
		}
		if most == 0 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
		released, err := r.Store.Runs.Release(limited, cause, most)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.Warn("runs that wait for a control cannot be woken, trying again", "cause", cause, "error", err)
		}
		if released > 0 {
			r.nudge()
		}
		if released == releaseMost {
			soon = SoonestBeat
		}
	}
	if soon == 0 && c.busy {
		soon = guard.Beat
	}
	if left := max(c.ends.Sub(c.now), SoonestBeat); !c.ends.IsZero() && (soon == 0 || left < soon) {
		soon = left
	}
	return soon
}

// least is how many of the runs that wait for what is lifted go on: most, but one at least
// once in a while.
func (r *Releaser) least(cause string, most int) int {
	now := time.Now()
	if most == 0 && now.Sub(r.lifted[cause]) < liftLeast {
		return 0
	}
	if len(r.lifted) >= maxLifted {
		clear(r.lifted) // nobody tells when one is over
	}
	r.lifted[cause] = now
	return max(most, 1)
}
