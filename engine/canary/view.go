package canary

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A View is the last trial in the form for people and programs.
type View struct {
	Phase    string     `json:"phase" doc:"none, running, shadow, promoted, rolled back, or superseded: another version became current meanwhile."`
	Old      string     `json:"old,omitempty" doc:"The current version."`
	New      string     `json:"new,omitempty" doc:"The version that is tried."`
	Percent  float64    `json:"percent" doc:"The share of keys whose new runs use the new version. In the shadow: the share of ended runs that nodes replay."`
	Next     float64    `json:"next,omitempty" doc:"The next share; absent if the share is held."`
	NotUntil *time.Time `json:"not_until,omitempty" doc:"When the next share begins at the earliest."`
	Waits    string     `json:"waits,omitempty"` // why it waits after that time and those runs
	Runs     int        `json:"runs" doc:"The runs of the new version that the server compared at this share."`
	Least    int        `json:"least" doc:"How many must have been compared before the next share."`
	Began    *time.Time `json:"began,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Why      string     `json:"why,omitempty" doc:"Why it ended."`
	Compared []Compared `json:"compared" doc:"The numbers of both versions at this share."`
	Shadow   *Shadowed  `json:"shadow,omitempty" doc:"What replays with the new version have found; absent for a canary."`
}

// A Compared compares the outcomes of both versions at this share.
type Compared struct {
	Kind string  `json:"kind" doc:"failures: of runs. errors: of the first attempts of a handler. latency: of runs, in milliseconds. calls: of a run."`
	Name string  `json:"name" doc:"The pipeline, or the path of the handler."`
	Old  Numbers `json:"old" doc:"The numbers of the current version."`
	New  Numbers `json:"new" doc:"The numbers of the version that is tried."`
}

// Numbers are those of one version. Failures and errors have bad ones, latency and calls have
// quantiles.
type Numbers struct {
	N   int     `json:"n" doc:"The number of runs or attempts."`
	Bad int     `json:"bad" doc:"How many of them failed."`
	P50 float64 `json:"p50,omitempty" doc:"The median of latency or calls."`
	P90 float64 `json:"p90,omitempty" doc:"The 90th percentile."`
}

// Text formats the numbers of a kind for people.
func (n Numbers) Text(kind string) string {
	switch kind {
	case Failures, Errors:
		return fmt.Sprintf("%d of %d", n.Bad, n.N)
	case Calls:
		return fmt.Sprintf("%g, %g", n.P50, n.P90)
	}
	return fmt.Sprintf("~%.1f, ~%.1f", n.P50, n.P90)
}

// None is the phase before the first trial.
const None = "none"

// View returns the view of a trial. The receiver may be nil.
func (s *State) View() View {
	if s == nil {
		return View{Phase: None, Compared: []Compared{}}
	}
	v := View{
		Phase: s.Phase, Old: s.Old, New: s.New, Percent: s.Percent, Runs: s.Judged(), Least: s.Least, Began: &s.Began, By: s.By,
		Reason: s.Reason, Why: s.Why, Compared: []Compared{}, Shadow: s.Shadow,
	}
	if !s.Lasts() {
		v.Ended = &s.Ended
	} else if s.Runs() && !s.Hold && s.Percent < 100 {
		at := s.Turned.Add(s.Every)
		v.Next, v.NotUntil, v.Waits = s.Next(), &at, s.Waits
	}
	for _, key := range slices.Sorted(maps.Keys(s.Seen)) {
		kind, name, _ := strings.Cut(key, " ")
		p := s.Seen[key]
		v.Compared = append(v.Compared, Compared{kind, name, p.Old.numbers(kind), p.New.numbers(kind)})
	}
	return v
}

func (s *Side) numbers(kind string) Numbers {
	n := Numbers{N: s.n(), Bad: s.Bad}
	if len(s.Buckets) > 0 {
		n.P50, n.P90 = s.valueAt(kind, 0.5), s.valueAt(kind, 0.9)
	}
	return n
}
