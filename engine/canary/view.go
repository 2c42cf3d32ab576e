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
	Phase    string     `json:"phase"`
	Old      string     `json:"old,omitempty"`
	New      string     `json:"new,omitempty"`
	Percent  float64    `json:"percent"`
	Next     float64    `json:"next,omitempty"`      // the next share; none while it is held
	NotUntil *time.Time `json:"not_until,omitempty"` // earliest time of that
	Waits    string     `json:"waits,omitempty"`     // why it waits after that time and those runs
	Runs     int        `json:"runs"`                // runs of the new version that were compared at this share
	Least    int        `json:"least"`               // how many runs are needed
	Began    *time.Time `json:"began,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Why      string     `json:"why,omitempty"` // reason of its end
	Compared []Compared `json:"compared"`
	Shadow   *Shadowed  `json:"shadow,omitempty"` // of a version in the shadow
}

// A Compared compares the outcomes of both versions at this share.
type Compared struct {
	Kind string  `json:"kind"`
	Name string  `json:"name"` // a pipeline, or the path of a handler
	Old  Numbers `json:"old"`
	New  Numbers `json:"new"`
}

// Numbers are those of one version. Failures and errors have bad ones, latency and calls have
// quantiles.
type Numbers struct {
	N   int     `json:"n"`
	Bad int     `json:"bad"`
	P50 float64 `json:"p50,omitempty"`
	P90 float64 `json:"p90,omitempty"`
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
