package node

import (
	"time"

	"procaas/engine/core"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/planner"
)

// off tells whether a handler of the run is left out at present, and why. What
// operators say comes first: a handler that they hold waits.
func (j *job) off(s *planner.Step, c *guard.Controls, now time.Time) (reason string, off bool) {
	if reason, off = c.Off(s, now); !off {
		if reason, off = j.n.d.Degrader.Outages().Off(s, now); !off || c.Overrides(s, now) {
			return "", false
		}
	}
	j.pass.LeaveAll(s.Path, now)
	return reason, off
}

// verdict asks the guard about a handler, and whether its outage lets this call
// through. While the handler is coming back, the run does not wait for it. Ref and
// due are those of [core.Live].Guard.
func (j *job) verdict(s *planner.Step, ref string, due time.Time, c *guard.Controls, now time.Time) core.Verdict {
	d := j.n.d
	o := d.Degrader.Outages().Of(s)
	if o == nil || c.Overrides(s, now) {
		return d.Guard.Verdict(s, ref, due, &j.pass, c, now)
	}
	admitted := o.Admits(now, j.claimed.ID, s.Path)
	if admitted == fallback.AdmitCall {
		return d.Guard.Verdict(s, ref, due, &j.pass, c, now)
	}
	if admitted == fallback.AdmitProbe && d.Guard.Verdict(s, ref, due, &j.pass, c, now) == (core.Verdict{}) && j.takeProbe(o.Name) {
		return core.Verdict{}
	}
	j.pass.Leave(ref, now)
	return core.Verdict{Skip: true, Reason: o.Reason(now)}
}

func (j *job) takeProbe(outage string) bool {
	taken, err := j.n.d.Degrader.TakeProbe(j.n.ctx, outage)
	if err != nil {
		j.n.d.Metrics.Failed("probe")
	}
	return taken
}
