package canary

import (
	"sync"
	"time"

	"procaas/engine/model"
)

const (
	sideOld = "old"
	sideNew = "new"

	// A key counts with one run in this time, so that a busy key does not weigh more.
	oneRunPerKey = 5 * time.Minute
	mostKeys     = 100_000 // remembered by a node; other keys do not count
)

// A Book decides which runs of a node are watched. The zero value is ready to use.
type Book struct {
	mu    sync.Mutex // guards the following
	turn  string
	since time.Time
	runs  map[[2]string]string // by flow and key
}

// A Watch observes one run for a trial. Nil observes nothing.
type Watch struct {
	State *State
	side  string
	began time.Time // zero if the run began elsewhere
	calls int
	over  bool
}

// Watch returns the Watch for a run of a version, or nil if the run does not count. A resumed run
// counts if it was accepted after the current share was set.
func (b *Book) Watch(s *State, version, flow, key, run string, accepted time.Time, resumes bool, now time.Time) *Watch {
	known := version == s.Old || version == s.New
	if !known || !s.Runs() || resumes && accepted.Before(s.Turned) {
		return nil
	}
	w := &Watch{State: s, side: sideOld}
	if version == s.New {
		w.side = sideNew
	}
	if !resumes {
		w.began = now
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if turn := s.turn(); b.turn != turn || now.Sub(b.since) > oneRunPerKey {
		b.turn, b.since, b.runs = turn, now, map[[2]string]string{}
	}
	of := [2]string{flow, key}
	if other, known := b.runs[of]; known && other != run || !known && len(b.runs) >= mostKeys {
		return nil
	}
	b.runs[of] = run
	return w
}

// Called counts a call of the run.
func (w *Watch) Called(path string) {
	if w != nil && !w.State.IsApart(path) {
		w.calls++
	}
}

// Tried returns the tally of a first attempt.
func (w *Watch) Tried(path string, ok bool, now time.Time) model.Tally {
	return w.tally(Errors, path, 0, ok, now)
}

// Over returns the tallies of a run that has ended or waits for an operator. It returns them once.
func (w *Watch) Over(pipeline string, ok bool, now time.Time) []model.Tally {
	if w == nil || w.over {
		return nil
	}
	w.over = true
	all := []model.Tally{w.tally(Failures, pipeline, 0, ok, now)}
	if !w.began.IsZero() {
		all = append(all, w.tally(Latency, pipeline, bucketOf(float64(now.Sub(w.began).Microseconds())/1000), true, now),
			w.tally(Calls, pipeline, callsBucket(w.calls), true, now))
	}
	return all
}

func (w *Watch) tally(kind, name string, bucket int, ok bool, now time.Time) model.Tally {
	t := model.Tally{Path: pathOf(w.State.turn(), w.side, kind, name, bucket), Second: now.Unix()}
	if ok {
		t.Good = 1
	} else {
		t.Bad = 1
	}
	return t
}
