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

// This file wakes runs that wait in the store when the cause of their wait has ended. It wakes them
// gently, because they are many and all come at once. Otherwise their services would be overloaded,
// and non-critical handlers would be left out because of a queue that only the hold has made.

// These bound how runs are woken.
const (
	releaseMost = 2000                  // runs woken in one transaction
	SoonestBeat = 10 * time.Millisecond // until the next beat, if there is more to do

	// liftLeast is the interval in which at least one run continues, however busy its services are.
	// Otherwise new runs could keep old ones waiting forever.
	liftLeast = time.Second

	// maxLifted bounds the remembered causes.
	maxLifted = 1000
)

// A caller decides how many of the runs that wait in the store are woken.
type caller struct {
	st       *Steering
	controls *guard.Controls
	now      time.Time
	rivals   map[string]int // number of causes that wait for a gate

	// free is for how many more runs the node has room. More woken runs would make the runs wait that
	// have just come, because they are older.
	free int

	// busy says that runs wait for a gate that lets calls through, so that there will soon be room
	// for more.
	busy bool

	ends time.Time // when the first control ends for which runs wait; zero for none
}

// caller prepares to wake runs with these causes.
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

// wakes returns how many of the runs with a cause may continue. lifted reports that the cause has
// ended. Then there may be many such runs.
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
				return c.roomAhead(path, ""), true
			}
			continue
		}
		if part == core.CauseMemory { // it comes back by itself
			continue
		}
		name, path, ok := guard.GateOf(part)
		switch {
		case ok && !c.waits(name, path):
			return c.roomAhead(path, ""), true
		case ok:
			room, moves := c.st.Guard.Gate(name).Appetite(c.now)
			c.busy = c.busy || moves
			switch {
			case room > 0 && c.free > 0:
				most = max(most, min(room/c.rivals[name], c.roomAhead(path, name), c.free), 1)
				c.free -= most
			case room > 0:
				return 0, true // one at least, once in a while
			}
		case !c.controls.InForce(part, c.now), c.nothingOn(part):
			path, _, _ := strings.Cut(part, " ")
			return c.roomAhead(path, ""), true
		default:
			c.expect(part)
		}
	}
	return most, false
}

// nothingOn reports whether all handlers below the path of a cause are off. Then no run has to wait
// there.
func (c *caller) nothingOn(part string) bool {
	path, _, _ := strings.Cut(part, " ")
	steps := c.st.Library.Present().Under(path)
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s *planner.Step) bool { return !c.isOff(s) })
}

// expect notes when a control that holds runs ends, because nothing else reports that.
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

// waits reports whether a handler has to wait at a gate. A handler that is off by now need not.
func (c *caller) waits(name, path string) bool {
	s := c.step(path)
	if s == nil || c.isOff(s) {
		return false
	}
	return name == path && s.Handler.MaxInFlight > 0 || s.Service != nil && name == s.Service.ID
}

// step returns a handler of the current definition, or its compensation, or nil.
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

// isOff reports whether a handler is off now. A compensation is only by a switch of its own.
func (c *caller) isOff(s *planner.Step) bool {
	_, off := c.st.Off(s, c.controls, c.now)
	return off
}

// roomAhead returns how many more runs may continue from a path at once, as far as later gates allow,
// ignoring one gate. It is half of the room, because runs on their way are not counted yet.
func (c *caller) roomAhead(path, besides string) int {
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

// A Releaser wakes runs for a node. It is for one goroutine.
type Releaser struct {
	*Steering
	log    *slog.Logger
	nudge  func()               // called when there are runs to claim
	room   func() int           // returns for how many more runs the node has room
	lifted map[string]time.Time // when a run with a cause last continued
}

// NewReleaser makes the Releaser of a node. It calls nudge after it has woken runs. room returns for
// how many more runs the node has room.
func (st *Steering) NewReleaser(log *slog.Logger, nudge func(), room func() int) *Releaser {
	return &Releaser{Steering: st, log: log, nudge: nudge, room: room, lifted: map[string]time.Time{}}
}

// Release wakes the runs that are parked for a cause that has ended, and as many of those that wait
// for a gate as there is room for. Any node may do it, whichever node parked the runs. soon is when
// to look again. 0 means at the next beat.
func (r *Releaser) Release(ctx context.Context, causes []string) (soon time.Duration) {
	c := r.caller(causes)
	c.free = r.room()
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

// least returns how many of the runs with a lifted cause continue: most, or one at least once in a
// while.
func (r *Releaser) least(cause string, most int) int {
	now := time.Now()
	if most == 0 && now.Sub(r.lifted[cause]) < liftLeast {
		return 0
	}
	if len(r.lifted) >= maxLifted {
		clear(r.lifted) // nothing reports the end of a cause
	}
	r.lifted[cause] = now
	return max(most, 1)
}
