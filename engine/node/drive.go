package node

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"procaas/engine/core"
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

// rest gives the turn up until news comes, and lets ring fire after a delay if one is set. It
// returns false when news is there already: then the caller still has the turn. A timer that was
// set for an earlier time is left alone, since a run that is stirred too early only looks once
// more.
func (t *turn) rest(delay time.Duration, set bool, ring func()) bool {
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
		t.timer = time.AfterFunc(delay, ring)
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

// A drive gives a run its turns, and makes its calls.
type drive struct {
	turn
	*job
	own *core.Attempt // a call that the goroutine makes which has the turn
}

// news lets a goroutine of the pool drive the run, unless another one drives it already.
func (d *drive) news() {
	if d.stir() {
		d.n.do(d.work)
	}
}

// ring stirs the run when its time has come.
func (d *drive) ring() {
	d.rang()
	d.news()
}

// handOff lets another goroutine make a call, and drive the run on when the call has ended.
func (d *drive) handOff(t *core.Attempt) {
	d.n.do(func() {
		if d.end(d.call(d.calls, t)) {
			d.work()
		}
	})
}

// work drives the run. It ends when the run waits or is over, and meanwhile makes the calls that on
// leaves to it. The caller must have the turn.
func (d *drive) work() {
	for {
		own := d.on()
		if own == nil || !d.end(d.call(d.calls, own)) {
			return
		}
	}
}

// on lets the run go on until it waits or is over. A call that it returns is for the caller to
// make: the run waits for it, and no other goroutine makes it.
func (d *drive) on() (own *core.Attempt) {
	for d.round() {
		own, d.own = d.own, nil
		delay, set := d.rests()
		if d.rest(delay, set, d.ring) {
			return own
		}
		if own != nil {
			d.handOff(own)
		}
	}
	d.over()
	d.letGo()
	d.pass.Close(d.n.d.Clock.Now())
	d.stopCalls()
	d.n.done(d.job)
	d.n.work.Done()
	return nil
}

// rests returns how long the run waits if it gets no news; set is false when it waits for news only.
func (d *drive) rests() (delay time.Duration, set bool) {
	if d.cancelling || d.n.isDraining() {
		return 0, false // nothing is started any more
	}
	if d.moves() {
		return d.delay(time.Time{})
	}
	return d.delay(d.run.Next())
}

// round lets the core decide, saves the result, and starts calls, until the run can only wait. It
// returns false if the run has ended, is parked, or is lost to this node.
func (d *drive) round() (more bool) {
	defer d.survive()
	if !d.begun {
		d.begun = true
		if !(opening{d.job}).begin() {
			return false
		}
	}
	ended, _ := d.collect()
	d.finish(ended)
	for more = true; more; {
		d.again = false
		switch {
		case d.n.ctx.Err() != nil:
			return false
		case d.cancelling || d.cancelled.Load():
			return d.stop()
		case d.n.isDraining():
			more = d.goOn(nil) && d.underway > 0 // without calls in flight, it is released as it was last saved
		case d.moves() && d.underway == 0 && d.putBack():
			return false
		case d.moves(): // nothing more starts
			more = d.goOn(nil)
		default:
			more = d.goOn(d.ready())
		}
		if more && !d.again && (!d.moves() || d.underway > 0) {
			return d.waits()
		}
	}
	return false
}

// waits reports whether there is something to wait for. If there is nothing, the run fails.
func (d *drive) waits() bool {
	if d.underway == 0 && d.run.Next().IsZero() {
		d.fail("", errors.New("internal error: the run waits for nothing"))
		return false
	}
	return true
}

// survive turns a panic of the core into the failure of the one run that caused it. Otherwise the
// process would end, and then each one that takes the run over.
func (j *job) survive() {
	if p := recover(); p != nil {
		j.at("").Error("run panicked", "panic", p, "stack", string(debug.Stack()))
		j.fail("", fmt.Errorf("internal error: %v", p))
	}
}
