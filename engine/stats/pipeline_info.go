package stats

import (
	"slices"
	"time"

	"procaas/engine/model"
)

// A PipelineInfo is a pipeline as this node sees it.
type PipelineInfo struct {
	Pipeline string           `json:"pipeline"`
	Owner    string           `json:"owner"`
	Windows  []PipelineWindow `json:"windows" doc:"The last 10 seconds, minute, 10 minutes and hour."`
}

// Ratio returns the current share of runs that succeed, as [HandlerInfo.Ratio] does.
func (p *PipelineInfo) Ratio() *float64 {
	if len(p.Windows) < len(periods) {
		return nil
	}
	return worse(p.Windows[0].Ended, p.Windows[0].SuccessRatio, p.Windows[1].SuccessRatio)
}

// Fails reports whether the pipeline is failing.
func (p *PipelineInfo) Fails() bool { return isFailing(p.Ratio()) }

// A PipelineWindow has the runs that ended in a period, and the events that this node accepted. A run that was undone
// after an error has failed.
type PipelineWindow struct {
	Window

	Accepted     int64   `json:"accepted" doc:"Events that this node accepted, without duplicates."`
	AcceptedPerS float64 `json:"accepted_per_second" doc:"The rate of these events."`
}

// Sum adds up the figures of pipelines.
func Sum(pipelines []PipelineInfo) []PipelineWindow {
	var sum []PipelineWindow
	for i, p := range pipelines {
		if i == 0 {
			sum = slices.Clone(p.Windows)
			continue
		}
		for k := range min(len(sum), len(p.Windows)) {
			sum[k].Add(p.Windows[k])
		}
	}
	return sum
}

// Add adds the figures of another node or pipeline.
func (w *PipelineWindow) Add(o PipelineWindow) {
	w.Window.Add(o.Window)
	w.Accepted += o.Accepted
	w.AcceptedPerS += o.AcceptedPerS
}

// A runStats has the figures of one pipeline.
type runStats struct{ accepted, ended *figures }

// ofRuns returns the figures of a pipeline.
func (s *Stats) ofRuns(pipeline string) *runStats {
	if r, ok := s.runs.Load(pipeline); ok {
		return r.(*runStats)
	}
	now := time.Now()
	r, _ := s.runs.LoadOrStore(pipeline, &runStats{accepted: newFigures(now), ended: newFigures(now)})
	return r.(*runStats)
}

// EventAccepted counts an event.
func (s *Stats) EventAccepted(pipeline string, now time.Time) {
	s.ofRuns(pipeline).accepted.End(false, Unmeasured, now)
}

// RunEnded counts a run, and how long it took since its event was accepted. A run that was undone after an error has
// failed, although its status is cancelled.
func (s *Stats) RunEnded(pipeline string, status model.Status, failed bool, took time.Duration, now time.Time) {
	s.Metrics.Runs.WithLabelValues(pipeline, string(status)).Inc()
	s.totals.ended(status)
	s.ofRuns(pipeline).ended.End(failed, max(took, 0), now)
}

// FillPipeline adds the figures to a view.
func (s *Stats) FillPipeline(p *PipelineInfo, now time.Time) {
	r := s.ofRuns(p.Pipeline)
	accepted := r.accepted.View(now)
	for i, w := range r.ended.View(now) {
		p.Windows = append(p.Windows, PipelineWindow{Window: w, Accepted: accepted[i].Ended, AcceptedPerS: accepted[i].PerS})
	}
}
