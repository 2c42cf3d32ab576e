package node

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/model"
)

// This file decides which goroutine drives a run. A run that waits has none. The goroutine of a
// call that ends drives its run on, and makes the next call itself. When a timer, an operator or
// new controls stir a run that waits, a goroutine of the pool drives it.

// A turn is the right to drive one run, and the news that came while another goroutine had it.
type turn struct {
	mu      sync.Mutex  // guards the following
	taken   bool        // a goroutine drives the run, or the run is over
	stirred bool        // the run must look again at what it waits for
	ended   []*ended    // calls that have ended since the last round
	timer   *time.Timer // stirs the run; nil until the first time
	rings   time.Time   // when the timer fires; zero when it is not set
}

// A ringer is called when the timer of a turn fires.
type ringer interface{ ring() }

// stir tells the run to look again. The caller must drive the run when it returns true.
func (t *turn) stir() (drive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stirred = true
	drive, t.taken = !t.taken, true
	return drive
}

// end hands in a call that has ended. The caller must drive the run when it returns true.
func (t *turn) end(e *ended) (drive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, e)
	drive, t.taken = !t.taken, true
	return drive
}

// collect returns the calls that have ended since the last time, and whether the run was stirred.
func (t *turn) collect() (calls []*ended, stirred bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls, stirred = t.ended, t.stirred
	t.ended, t.stirred = nil, false
	return calls, stirred
}

// rest gives the turn up until news comes, and rings after a delay if one is set. It
// returns false when news is there already: then the caller still has the turn. A timer that was
// set for an earlier time is left alone, since a run that is stirred too early only looks once
// more.
func (t *turn) rest(delay time.Duration, set bool, r ringer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stirred || len(t.ended) > 0 {
		return false
	}
	t.taken = false
	if !set {
		return true
	}
	at := time.Now().Add(delay)
	switch {
	case t.timer == nil:
		t.timer = time.AfterFunc(delay, r.ring)
	case t.rings.IsZero() || at.Before(t.rings):
		t.timer.Reset(delay)
	default:
		return true
	}
	t.rings = at
	return true
}

// rang notes that the timer has fired.
func (t *turn) rang() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rings = time.Time{}
}

// over stops the timer of a run that needs no more of this node. Nobody gets its turn any more.
func (t *turn) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
}

// news lets a goroutine of the pool drive the run, unless another one drives it already.
func (j *job) news() {
	if j.turn.stir() {
		j.n.do(j.work)
	}
}

// ring stirs the run when its time has come.
func (j *job) ring() {
	j.turn.rang()
	j.news()
}

// handOff lets another goroutine make a call, and drive the run on when the call has ended.
func (j *job) handOff(t *core.Attempt) {
	j.n.do(func() {
		if j.turn.end(j.call(j.calls, t)) {
			j.work()
		}
	})
}

// work drives the run. It ends when the run waits or is over, and meanwhile makes the calls that on
// leaves to it. The caller must have the turn.
func (j *job) work() {
	for {
		own := j.on()
		if own == nil || !j.turn.end(j.call(j.calls, own)) {
			return
		}
	}
}

// on lets the run go on until it waits or is over. A call that it returns is for the caller to
// make: the run waits for it, and no other goroutine makes it.
func (j *job) on() (own *core.Attempt) {
	for j.round() {
		own, j.own = j.own, nil
		delay, set := j.rests()
		if j.turn.rest(delay, set, j) {
			return own
		}
		if own != nil {
			j.handOff(own)
		}
	}
	// The turn is never given back, so that news which still comes finds nobody to start.
	j.turn.over()
	j.letGo()
	j.pass.Close(j.n.d.Clock.Now())
	j.stopCalls()
	j.n.done(j)
	j.n.work.Done()
	return nil
}

// rests returns how long the run waits if it gets no news; set is false when it waits for news only.
func (j *job) rests() (delay time.Duration, set bool) {
	if j.cancelling || j.n.isDraining() {
		return 0, false // nothing is started any more
	}
	if j.moves() {
		return j.delay(time.Time{})
	}
	return j.delay(j.run.Next())
}

// round lets the core decide, saves the result, and starts calls, until the run can only wait. It
// returns false if the run has ended, is parked, or is lost to this node.
//
// A panic of the core fails the one run that caused it, and this node lets go of it. Otherwise the
// process would end, and then each one that takes the run over.
func (j *job) round() (more bool) {
	defer func() {
		if p := recover(); p != nil {
			more = false
			j.at("").Error("run panicked", "panic", p, "stack", string(debug.Stack()))
			j.fail("", fmt.Errorf("internal error: %v", p))
		}
	}()
	if !j.begun {
		j.begun = true
		if !j.begin() {
			return false
		}
	}
	// The core hears of all ends before it decides anything, so that one checkpoint has all of them.
	ended, _ := j.turn.collect()
	j.finish(ended)
	for more = true; more; {
		j.again = false
		switch {
		case j.n.ctx.Err() != nil:
			return false // fenced: another node may have the run already
		case j.cancelling || j.cancelled.Load():
			return j.stop()
		case j.n.isDraining():
			more = j.goOn(nil) && j.underway > 0 // without calls in flight, it is released as it was last saved
		case j.moves() && j.underway == 0 && j.putBack():
			return false
		case j.moves(): // nothing more starts
			more = j.goOn(nil)
		default:
			more = j.goOn(j.ready())
		}
		if more && !j.again && (!j.moves() || j.underway > 0) {
			return j.waits()
		}
	}
	return false
}

// waits reports whether there is something to wait for. If there is nothing, the run fails.
func (j *job) waits() bool {
	if j.underway == 0 && j.run.Next().IsZero() {
		j.fail("", errors.New("internal error: the run waits for nothing"))
		return false
	}
	return true
}

// delay returns the time until there is something to do even if no call ends. ok is false if there
// is nothing.
func (j *job) delay(next time.Time) (delay time.Duration, ok bool) {
	if !next.IsZero() {
		delay, ok = next.Sub(j.n.d.Clock.Now()), true
	}
	if ok && delay > guard.ShortHold && j.underway > 0 && strings.Contains(j.run.Cause(), guard.Mark) {
		delay = guard.ShortHold // nothing wakes a run that does not wait in the store
	}
	if _, listens := j.run.Awaits(); listens && (!ok || delay > listenEvery) {
		delay, ok = listenEvery, true
	}
	if !j.unsaved.IsZero() {
		if save := j.patience() - j.n.d.Clock.Now().Sub(j.unsaved); !ok || save < delay {
			delay, ok = save, true
		}
	}
	return delay, ok
}

// stop ends the run because an operator has cancelled it. The next event of the key may start then,
// so it interrupts the calls in flight, and the run ends with the last of them. It returns false if
// the run is over.
func (j *job) stop() (more bool) {
	j.cancelling = true
	j.stopCalls()
	if j.underway > 0 {
		return true
	}
	j.run.Cancel(model.CancelReason, j.n.d.Clock.Now())
	change := j.run.Change()
	change.Version, change.Status, change.Reason = j.version, model.Cancelled, model.CancelReason
	j.count()
	_ = j.commit(change) // commit has logged what went wrong
	return false
}
