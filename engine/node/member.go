package node

import (
	"procaas/engine/intake"
	"procaas/engine/store"
)

// Nudge implements [records.Node].
func (d *Driver) Nudge() {
	if n := d.node.Load(); n != nil {
		n.nudge()
	}
}

// Cancel implements [records.Node].
func (d *Driver) Cancel(run string) {
	if j := d.job(run); j != nil {
		j.cancel()
	}
}

// Move implements [records.Node].
func (d *Driver) Move(run, order string) {
	if j := d.job(run); j != nil {
		j.move(order)
	}
}

// job finds a run that the node works on; nil when it does not.
func (d *Driver) job(run string) *job {
	if n := d.node.Load(); n != nil {
		return n.job(run)
	}
	return nil
}

// Reserve implements [intake.Room].
func (d *Driver) Reserve(runs int) (r intake.Reservation) {
	n := d.node.Load()
	if n == nil {
		r.Take = func([]store.Accepted, error) {}
		return r
	}
	if !n.backlog.Load() {
		r.Runs = n.ask(min(runs, n.left()))
	}
	if r.Runs > 0 {
		r.Node = n.number
	}
	r.Take = func(results []store.Accepted, err error) { n.accepted(r.Runs, results, err) }
	return r
}
