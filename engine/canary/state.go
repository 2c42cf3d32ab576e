package canary

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
)

// The phases of a trial.
const (
	Running    = "running"
	Promoted   = "promoted"    // the new version is current
	RolledBack = "rolled back" // the old version stayed
	Superseded = "superseded"  // another version became current meanwhile
)

// An Order says how a version is tried. Zero values stand for the defaults.
type Order struct {
	Percent float64       // of keys, at first
	Every   time.Duration // how long each share lasts at least
	Least   int           // how many runs of the new version end at each share at least
	Hold    bool          // stay at the share
	Ignore  []string      // kinds that are not judged
}

// The defaults of an [Order].
const (
	DefaultEvery = 10 * time.Minute
	DefaultLeast = 100
)

// shares are those that follow the first one. The last one makes the version current.
func shares() []float64 { return []float64{25, 50, 100} }

// A State is the last trial, which all nodes share. It is plain data, stored as JSON.
type State struct {
	Old     string        `json:"old"`
	New     string        `json:"new"`
	Phase   string        `json:"phase"`
	Percent float64       `json:"percent"` // of keys whose new runs use New
	Every   time.Duration `json:"every"`
	Least   int           `json:"least"`
	Hold    bool          `json:"hold,omitempty"`
	Ignore  []string      `json:"ignore,omitempty"`
	Began   time.Time     `json:"began"`
	Turned  time.Time     `json:"turned"` // when the share became that
	Ended   time.Time     `json:"ended,omitzero"`
	By      string        `json:"by"`
	Reason  string        `json:"reason,omitempty"`
	Auto    bool          `json:"auto,omitempty"` // it was rolled back by itself
	Why     string        `json:"why,omitempty"`  // it ended

	Tests int              `json:"tests"`           // how many comparisons there may be
	Apart []string         `json:"apart,omitempty"` // paths that only one of the versions has
	Seen  map[string]*Pair `json:"seen,omitempty"`  // at this share, by kind and name
}

// A Pair is what runs of both versions came to.
type Pair struct {
	Old  Side `json:"old"`
	New  Side `json:"new"`
	Look int  `json:"look,omitempty"` // how many runs of New the next look waits for
}

// A Side is what runs of one version came to: so many were good and bad, or had a number in each bucket.
type Side struct {
	Good    int         `json:"good,omitempty"`
	Bad     int         `json:"bad,omitempty"`
	Buckets map[int]int `json:"buckets,omitempty"`
}

// An Event is something that became of a trial.
type Event struct {
	Phase   string  `json:"phase"`
	Percent float64 `json:"percent"`
	Old     string  `json:"old"`
	New     string  `json:"new"`
	Why     string  `json:"why,omitempty"`
}

// Begin begins a trial. Tests and Apart are of the definitions.
func Begin(old, now string, o Order, tests int, apart []string, by, reason string, at time.Time) *State {
	s := &State{
		Old: old, New: now, Phase: Running, Began: at, By: by, Reason: reason, Tests: tests, Apart: apart, Ignore: o.Ignore,
		Every: o.Every, Least: o.Least, Hold: o.Hold,
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

// tellFor is how long people are told that a version was rolled back, unless another one is tried.
const tellFor = time.Hour

// RolledBackLately reports whether the version was rolled back by itself, and people should still be told.
func (s *State) RolledBackLately(now time.Time) bool {
	return s != nil && s.Auto && now.Sub(s.Ended) < tellFor
}

// Runs reports whether the trial goes on.
func (s *State) Runs() bool { return s != nil && s.Phase == Running }

// Turn makes another share of the keys use the new version. What was seen before does not count any more.
func (s *State) Turn(percent float64, now time.Time) Event {
	s.Percent, s.Turned, s.Seen = percent, now, nil
	return s.event()
}

// End ends the trial.
func (s *State) End(phase, why string, now time.Time) Event {
	s.Phase, s.Why, s.Ended = phase, why, now
	return s.event()
}

// Split says by which versions new runs begin, as long as the old one is current.
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

// Decide takes in what runs came to, and says what becomes of the trial. Current is the version that is current now.
// One node does it, once a second.
func (s *State) Decide(now time.Time, tallies []model.Tally, current string) []Event {
	if !s.Runs() {
		return nil
	}
	switch current {
	case s.New:
		return []Event{s.End(Promoted, fmt.Sprintf("it was no worse at %g %% of the keys", s.Percent), now)}
	case s.Old:
	default:
		return []Event{s.End(Superseded, "version "+current+" became current", now)}
	}
	for _, t := range tallies {
		s.take(t)
	}
	if s.Percent >= 100 {
		return nil // nothing to compare with; nodes make it current
	}
	if why := s.judge(); why != "" {
		s.Auto = true
		return []Event{s.End(RolledBack, why, now)}
	}
	if s.Hold || now.Sub(s.Turned) < s.Every || s.Judged() < s.Least {
		return nil
	}
	return []Event{s.Turn(s.Next(), now)}
}

// Next returns the share that follows.
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

// tallied begins the path of tallies that are of a trial. No path of a handler has a space.
const tallied = "canary "

// turn tells one share of one trial from another.
func (s *State) turn() string { return strconv.FormatInt(s.Turned.UnixMilli(), 36) }

// pathOf makes the path of a tally.
func pathOf(turn, side, kind, name string, bucket int) string {
	path := tallied + turn + " " + side + " " + kind + " " + name
	if kind == Latency || kind == Calls {
		path += " " + strconv.Itoa(bucket)
	}
	return path
}

// take counts a tally, when it is of this share.
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

// IsApart reports whether only one of the versions has a handler.
func (s *State) IsApart(path string) bool {
	_, found := slices.BinarySearch(s.Apart, path)
	return found
}
