package engine

import (
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/fallback"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A Notice tells that something has become of a path that its owner may have to
// know of. Each is told once, by the node on which it happened; but for
// fallbacks it says nothing about how often such things happen, nor when they are
// over: who alerts people has to make that out.
type Notice struct {
	Kind     NoticeKind
	Path     string    // of the handler; of the pipeline when no handler is to blame
	Owner    string    // of the path; empty when nobody is named
	Critical bool      // its runs cannot succeed without the handler
	Time     time.Time // by the store's clock

	Run, Flow, Key string // of the run that it happened to; empty when it is about none
	Error          string // or why a fallback is on

	// The following is of fallbacks.
	Service  string    // that is out as a whole; then Path is empty
	Handlers []string  // that are out with it
	Ratio    float64   // of the calls that sent the handler out, how many succeeded
	Until    time.Time // as of [fallback.Change]
}

// A NoticeKind says what has happened.
type NoticeKind string

// The kinds of notices.
const (
	// NoticeGivenUp: a handler that is not critical has failed for good, and its
	// run went on without it. One that is critical fails its run.
	NoticeGivenUp NoticeKind = "handler-given-up"

	// NoticeRunFailed: a run has failed.
	NoticeRunFailed NoticeKind = "run-failed"

	// NoticeRunParked: a run stands still until an operator decides about it.
	NoticeRunParked NoticeKind = "run-parked"

	// NoticeKeyBlocked: the later events of a key wait for a run that has failed
	// or stands still. It follows the notice of the run.
	NoticeKeyBlocked NoticeKind = "key-blocked"

	// NoticeFallbackOn and NoticeFallbackOff: a handler, or all handlers of a
	// service, went out of the flow by themselves, and are back.
	NoticeFallbackOn  NoticeKind = "fallback-on"
	NoticeFallbackOff NoticeKind = "fallback-off"

	// NoticeFrozen and NoticeThawed: half of all services fail at once, so that
	// nothing goes out of the flow; and that is over.
	NoticeFrozen NoticeKind = "fallbacks-frozen"
	NoticeThawed NoticeKind = "fallbacks-thawed"
)

// notify tells about a run, when anybody wants to know.
func (j *job) notify(kind NoticeKind, path, text string) {
	tell := j.n.e.o.Notify
	if tell == nil {
		return
	}
	n := Notice{
		Kind: kind, Path: path, Error: text, Time: j.n.e.clock.Now(),
		Run: j.claimed.ID, Flow: j.claimed.Flow, Key: j.claimed.Key,
	}
	def := j.def
	if def == nil { // it has not begun
		def = j.n.e.library.Present()
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

// leftOut counts a handler that the run goes on without. One that had to wait for too long is
// told of, as one that has failed is: nothing else would say so.
func (j *job) leftOut(h checkpoint.HandlerView, step *planner.Step, by string) {
	parts := model.SplitPath(h.Path)
	j.n.e.metrics.HandlerLeftOut.WithLabelValues(parts[0], parts[1], parts[2], by).Inc()
	if by == model.LeftByWait && step != nil {
		j.n.e.stats.Path(h.Path).Waited(time.Now())
		j.notify(NoticeGivenUp, h.Path, h.Reason)
	}
}

// notice tells what a step that is saved may mean to people.
func (j *job) notice(c model.Change) {
	// A run that is parked until a time goes on by itself.
	waits := c.Status == model.Parked && c.Due.IsZero()
	switch {
	case c.Status == model.Failed:
		j.notify(NoticeRunFailed, c.FailedPath, c.Error)
		if j.claimed.Ordered && j.claimed.Block {
			j.notify(NoticeKeyBlocked, c.FailedPath, c.Error)
		}
	case waits:
		path, why := "", c.Error
		if j.run != nil {
			path, why = j.run.Stuck()
		}
		j.notify(NoticeRunParked, path, why)
		if j.claimed.Ordered {
			j.notify(NoticeKeyBlocked, path, why)
		}
	}
}

// notifyFallback tells about a fallback, when anybody wants to know.
func (e *Engine) notifyFallback(c fallback.Change) {
	kind, ok := map[string]NoticeKind{
		fallback.Out: NoticeFallbackOn, fallback.Back: NoticeFallbackOff,
		fallback.Frozen: NoticeFrozen, fallback.Thawed: NoticeThawed,
	}[c.Kind]
	if e.o.Notify == nil || !ok {
		return
	}
	n := Notice{Kind: kind, Path: c.Name, Time: e.clock.Now(), Error: c.Why, Ratio: c.Ratio, Until: c.Until}
	if c.Service {
		n.Path, n.Service, n.Handlers = "", c.Name, c.Paths
		if s := e.Bundle().Service(c.Name); s != nil {
			n.Owner = s.Owner
		}
	} else if plan := e.library.Present().ByID[model.PipelineOf(c.Name)]; plan != nil && plan.Step(c.Name) != nil {
		n.Owner = plan.Step(c.Name).Owner
	}
	e.o.Notify(n)
}
