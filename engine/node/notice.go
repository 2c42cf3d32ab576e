package node

import (
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// notify tells about a run, when anybody wants to know.
func (j *job) notify(kind model.NoticeKind, path, text string) {
	tell := j.n.d.Notify
	if tell == nil {
		return
	}
	n := model.Notice{
		Kind: kind, Path: path, Error: text, Time: j.n.d.Clock.Now(),
		Run: j.claimed.ID, Flow: j.claimed.Flow, Key: j.claimed.Key,
	}
	def := j.def
	if def == nil { // it has not begun
		def = j.n.d.Library.Present()
	}
	if n.Path == "" {
		n.Path = j.claimed.Pipeline
	}
	if plan := def.ByID[model.PipelineOf(n.Path)]; plan != nil {
		n.Owner = plan.Pipeline.Owner
		// The path of a run that has failed may be that of its pipeline.
		if s := plan.Step(n.Path); s != nil {
			n.Owner, n.Critical = s.Owner, s.Handler.IsCritical()
		}
	}
	tell(n)
}

// leftOut counts a handler that the run continues without. One that had to wait for too long is
// told of, as one that has failed is: nothing else would say so.
func (j *job) leftOut(h checkpoint.HandlerView, step *planner.Step, by string) {
	parts := model.SplitPath(h.Path)
	j.n.d.Metrics.HandlerLeftOut.WithLabelValues(parts[0], parts[1], parts[2], by).Inc()
	if by == model.LeftByWait && step != nil {
		j.n.d.Stats.Path(h.Path).Waited(time.Now())
		j.notify(model.NoticeGivenUp, h.Path, h.Reason)
	}
}

// notice tells what a step that is saved may mean to people.
func (j *job) notice(c model.Change) {
	// A run that is parked until a time goes on by itself.
	waits := c.Status == model.Parked && c.Due.IsZero()
	if ok := c.Status == model.Succeeded; ok || waits && c.Error != "" || c.Status == model.Failed {
		j.n.d.Degrader.Tally(j.watch.Over(c.Pipeline, ok, j.n.d.Clock.Now())...)
	}
	switch {
	case c.Status == model.Failed:
		j.notify(model.NoticeRunFailed, c.FailedPath, c.Error)
		if j.claimed.Ordered && j.claimed.Block {
			j.notify(model.NoticeKeyBlocked, c.FailedPath, c.Error)
		}
	case waits:
		path, why := "", c.Error
		if j.run != nil {
			path, why = j.run.Stuck()
		}
		j.notify(model.NoticeRunParked, path, why)
		if j.claimed.Ordered {
			j.notify(model.NoticeKeyBlocked, path, why)
		}
	}
}
