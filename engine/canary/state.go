package canary

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
)

// These are the phases of a trial.
const (
	Running    = "running"
	Promoted   = "promoted"    // the new version became current
	RolledBack = "rolled back" // the old version stayed
	Superseded = "superseded"  // another version became current meanwhile
)

// An Order says how to try a version. Zero values mean the defaults.
type Order struct {
	Percent float64       // of keys, at the start
	Every   time.Duration // shortest time at each share
	Least   int           // fewest ended runs of the new version at each share
	Hold    bool          // stay at the share
	Ignore  []string      // kinds that are not judged
	Shadow  bool          // no run uses the version; Percent is of the runs that nodes replay with it
	Owners  []string      // whose files the version may change; nil for all
}

// These are the defaults of an [Order].
const (
	DefaultEvery = 10 * time.Minute
	DefaultLeast = 100
)

// shares lists the shares after the first one. The last one makes the version current.
func shares() []float64 { return []float64{25, 50, 100} }

// A State is the last trial, which all nodes share. It is stored as JSON.
type State struct {
	Old     string        `json:"old"`
	New     string        `json:"new"`
	Phase   string        `json:"phase"`
	Percent float64       `json:"percent"` // of the keys, whose new runs use New
	Every   time.Duration `json:"every"`
	Least   int           `json:"least"`
	Hold    bool          `json:"hold,omitempty"`
	Ignore  []string      `json:"ignore,omitempty"`
	Began   time.Time     `json:"began"`
	Turned  time.Time     `json:"turned"` // when the share was set
	Ended   time.Time     `json:"ended,omitzero"`
	By      string        `json:"by"`
	Reason  string        `json:"reason,omitempty"`
	Auto    bool          `json:"auto,omitempty"` // it was rolled back automatically
	Why     string        `json:"why,omitempty"`  // reason of its end

	Tests   int              `json:"tests"`             // number of comparisons
	Apart   []string         `json:"apart,omitempty"`   // paths that only one version has
	Changed []string         `json:"changed,omitempty"` // paths of handlers that differ
	Waits   string           `json:"waits,omitempty"`   // why the next share waits, although time and runs suffice
	Seen    map[string]*Pair `json:"seen,omitempty"`    // counts at this share, by kind and name

	Shadow *Shadowed `json:"shadow,omitempty"` // what replays have found; nil for a canary
}

// A Pair has the counts of both versions.
type Pair struct {
	Old  Side `json:"old"`
	New  Side `json:"new"`
	Look int  `json:"look,omitempty"` // number of runs of New at which the next look is due
}

// A Side has the counts of one version: good and bad ones, or the number in each bucket.
type Side struct {
	Good    int         `json:"good,omitempty"`
	Bad     int         `json:"bad,omitempty"`
	Buckets map[int]int `json:"buckets,omitempty"`
}

// An Event is an event of a trial.
type Event struct {
	Phase   string  `json:"phase"`
	Percent float64 `json:"percent"`
	Old     string  `json:"old"`
	New     string  `json:"new"`
	Why     string  `json:"why,omitempty"`
}

// Begin begins a trial. tests and apart depend on the definitions.
func Begin(old, now string, o Order, tests int, apart []string, by, reason string, at time.Time) *State {
	s := &State{
		Old: old, New: now, Phase: Running, Began: at, By: by, Reason: reason, Tests: tests, Apart: apart, Ignore: o.Ignore,
		Every: o.Every, Least: o.Least, Hold: o.Hold,
	}
	if o.Shadow {
		s.Phase = InShadow
	}
	if s.Every == 0 {
		s.Every = DefaultEvery
	}
	if s.Least == 0 {
		s.Least = DefaultLeast
	}
	s.Turn(o.Percent, at)
	return s
}

// tellFor is how long a rollback is shown, unless another version is tried.
const tellFor = time.Hour

// RolledBackLately reports whether the version was rolled back automatically, and people should
// still see that.
func (s *State) RolledBackLately(now time.Time) bool {
	return s != nil && s.Auto && now.Sub(s.Ended) < tellFor
}

// Runs reports whether the trial is in progress.
func (s *State) Runs() bool { return s != nil && s.Phase == Running }

// Turn sets another share. Earlier counts no longer matter.
func (s *State) Turn(percent float64, now time.Time) Event {
	s.Percent = percent
	s.Turned = now
	s.Seen = nil
	s.Shadow = nil
	s.Waits = ""
	if s.IsInShadow() {
		s.Shadow = newShadowed()
	}
	return s.event()
}

// End ends the trial.
func (s *State) End(phase, why string, now time.Time) Event {
	s.Phase = phase
	s.Why = why
	s.Ended = now
	s.Waits = ""
	return s.event()
}

// Split returns the versions of new runs, as long as the old one is current.
func (s *State) Split() (all model.Split) {
	switch {
	case s.Runs():
		all = model.Split{Old: s.Old, New: s.New, Percent: s.Percent}
	case s != nil:
		all.Old = s.Old
	}
	return all
}

func (s *State) event() Event {
	return Event{Phase: s.Phase, Percent: s.Percent, Old: s.Old, New: s.New, Why: s.Why}
}

// Decide adds the outcomes of runs and returns what changes. current is the current version of the
// store, which the deciding node may not serve yet, and out are the paths of handlers that fallbacks have turned off. One node calls it once a second.
func (s *State) Decide(now time.Time, tallies []model.Tally, current string, out []string) []Event {
	if !s.Lasts() {
		return nil
	}
	switch current {
	case s.New:
		return []Event{s.End(Promoted, s.whyPromoted(), now)}
	case s.Old:
	default:
		return []Event{s.End(Superseded, "version "+current+" became current", now)}
	}
	if s.IsInShadow() {
		s.takeReplays(tallies)
		return nil
	}
	for _, t := range tallies {
		s.take(t)
	}
	if s.Percent >= 100 {
		return nil // nothing left to compare; nodes make it current
	}
	if why := s.judge(); why != "" {
		s.Auto = true
		return []Event{s.End(RolledBack, why, now)}
	}
	if s.Hold || now.Sub(s.Turned) < s.Every || s.Judged() < s.Least {
		return nil
	}
	s.Waits = s.unjudged(out)
	if s.Waits != "" {
		return nil
	}
	return []Event{s.Turn(s.Next(), now)}
}

// whyPromoted returns why the new version is current.
func (s *State) whyPromoted() string {
	if s.IsInShadow() {
		return "it became current without a canary"
	}
	return fmt.Sprintf("it was no worse at %g %% of the keys", s.Percent)
}

// Next returns the next share.
func (s *State) Next() float64 {
	for _, p := range shares() {
		if p > s.Percent {
			return p
		}
	}
	return 100
}

// Judged returns how many runs of the new version were compared at this share.
func (s *State) Judged() (n int) {
	for name, p := range s.Seen {
		if strings.HasPrefix(name, Failures+" ") {
			n += p.New.Good + p.New.Bad
		}
	}
	return n
}

// tallied is the prefix of the paths of a trial's tallies. No path of a handler has a space.
const tallied = "canary "

// turn identifies a share of a trial.
func (s *State) turn() string { return strconv.FormatInt(s.Turned.UnixMilli(), 36) }

// pathOf returns the path of a tally.
func pathOf(turn, side, kind, name string, bucket int) string {
	path := tallied + turn + " " + side + " " + kind + " " + name
	if kind == Latency || kind == Calls {
		path += " " + strconv.Itoa(bucket)
	}
	return path
}

// take counts a tally of this share.
func (s *State) take(t model.Tally) {
	rest, ok := strings.CutPrefix(t.Path, tallied+s.turn()+" ")
	parts := strings.Split(rest, " ")
	if !ok || len(parts) < 3 {
		return
	}
	if s.Seen == nil {
		s.Seen = map[string]*Pair{}
	}
	name := parts[1] + " " + parts[2]
	p := s.Seen[name]
	if p == nil {
		p = &Pair{}
		s.Seen[name] = p
	}
	side := &p.Old
	if parts[0] == sideNew {
		side = &p.New
	}
	if len(parts) == 3 {
		side.Good += t.Good
		side.Bad += t.Bad
		return
	}
	bucket, err := strconv.Atoi(parts[3])
	if err != nil {
		return
	}
	if side.Buckets == nil {
		side.Buckets = map[int]int{}
	}
	side.Buckets[bucket] += t.Good
}

// IsApart reports whether only one version has a handler.
func (s *State) IsApart(path string) bool {
	_, found := slices.BinarySearch(s.Apart, path)
	return found
}
