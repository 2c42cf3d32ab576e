package fallback

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// A Watched is a handler whose calls are counted.
type Watched struct {
	Path     string // pipeline/stage/handler
	Service  string // the service that it calls: a declared one or a host; empty for none
	Critical bool   // it is never turned off, but its calls count for its service
	Unfrozen bool   // it is turned off even while half of all services fail

	// Fallback says when to turn the handler off. Nil means never. Its calls count for its service
	// in any case.
	Fallback *tree.Fallback
}

// Rules decides which handlers are off. It is immutable. Everything that changes is in a [State].
type Rules struct {
	watched    []Watched // ordered by path
	byPath     map[string]*Watched
	byService  map[string][]*Watched
	byPipeline map[string]int // number of non-critical handlers
}

// NewRules prepares decisions about these handlers.
func NewRules(watched []Watched) *Rules {
	f := &Rules{
		watched: slices.Clone(watched), byPath: map[string]*Watched{},
		byService: map[string][]*Watched{}, byPipeline: map[string]int{},
	}
	slices.SortFunc(f.watched, func(a, b Watched) int { return cmp.Compare(a.Path, b.Path) })
	for i := range f.watched {
		w := &f.watched[i]
		if w.Critical {
			w.Fallback = nil
		} else {
			f.byPipeline[model.PipelineOf(w.Path)]++
		}
		f.byPath[w.Path] = w
		if w.Service != "" {
			f.byService[w.Service] = append(f.byService[w.Service], w)
		}
	}
	return f
}

// These parameters of the algorithm cannot be set by authors.
const (
	probesNeeded = 5                // successes in a row that bring a handler back
	rampTime     = 15 * time.Second // time in which calls grow from rampStart to all
	rampStart    = 0.25
	relapse      = 10 * time.Minute // a trip this soon after the last one doubles the time off
	together     = 10 * time.Second // two trips within this time are one outage of their service
	// the largest share of a pipeline's non-critical handlers that may be off on their own
	outShare     = 0.3
	serviceShare = 0.5 // the same for the handlers of a service, while the service itself is not off
)

// These are the kinds of changes.
const (
	Out      = "out"      // off until a time
	Extended = "extended" // off for longer: a probe failed
	Probing  = "probing"  // one call a second tests whether it works again
	Ramping  = "ramping"  // a growing share of calls is made
	Back     = "back"     // in the flow
	Capped   = "capped"   // it fails, but too many are off already
	Frozen   = "frozen"   // half of all services fail at once: nothing is turned off
	Thawed   = "thawed"   // no longer frozen
)

// A Change is a change that people want to know about.
type Change struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name,omitempty"` // a path, or a service that is off as a whole
	Service bool      `json:"service,omitempty"`
	Paths   []string  `json:"paths,omitempty"` // the handlers that it is about
	Since   time.Time `json:"since,omitzero"`  // when the outage began
	Until   time.Time `json:"until,omitzero"`
	Ratio   float64   `json:"ratio"` // success ratio of the calls that turned it off
	Trips   int       `json:"trips,omitempty"`
	Why     string    `json:"why,omitempty"`
}

// Decide adds the outcomes of calls and returns what changes. One node calls it once a second, with
// a state that all nodes share and with its own counts.
func (f *Rules) Decide(s *State, counts Counts, now time.Time, tallies []model.Tally) []Change {
	d := decision{Rules: f, State: s, counts: counts, now: now}
	d.forget()
	for _, t := range tallies {
		d.count(t)
	}
	s.Outages = slices.DeleteFunc(s.Outages, d.advance)
	why, half := d.halfFails()
	failing := d.failing()
	switch {
	case half && (!s.Frozen.IsZero() || len(failing) > 0 || d.anyServiceDown()):
		if s.Frozen.IsZero() {
			s.Frozen, s.FrozenWhy = now, why
			d.tell(Change{Kind: Frozen, Why: why})
		}
	case !s.Frozen.IsZero():
		s.Frozen, s.FrozenWhy = time.Time{}, ""
		d.tell(Change{Kind: Thawed})
	}
	stays := func(w *Watched) bool { return !s.Frozen.IsZero() && !w.Unfrozen }
	for _, service := range slices.Sorted(maps.Keys(f.byService)) {
		if !stays(f.byService[service][0]) { // reported for the service
			d.takeOutService(service, failing)
		}
	}
	for _, w := range d.watched {
		if why, ok := failing[w.Path]; ok && d.outage(w.Path) == nil && !stays(&w) {
			d.takeOut(w, why)
		}
	}
	return d.changes
}

// Recount returns the counts for a node that begins to decide. It needs the tallies of the longest
// window, at least of five minutes.
func (f *Rules) Recount(s *State, now time.Time, tallies []model.Tally) Counts {
	d := decision{Rules: f, State: s, counts: Counts{}, now: now}
	for _, t := range tallies {
		d.recount(t)
	}
	return d.counts
}

// A decision is one call of Decide.
type decision struct {
	*Rules
	*State
	counts  Counts
	now     time.Time
	changes []Change
}

func (d *decision) tell(c Change) { d.changes = append(d.changes, c) }

// tellOf reports a change of an outage.
func (d *decision) tellOf(o *Outage, kind, why string) {
	d.tell(Change{
		Kind: kind, Name: o.Name, Service: o.Service, Since: o.Since, Until: o.end(), Ratio: o.Ratio, Trips: o.Trips, Why: why,
		Paths: slices.Clone(o.Members), // others may join later
	})
}

// failing returns the handlers to turn off, each with the reason.
func (d *decision) failing() map[string]string {
	failing := map[string]string{}
	for _, w := range d.watched {
		if w.Fallback == nil || d.outage(w.Path) != nil {
			continue
		}
		if why, ok := judge(d.counts[w.Path], w.Fallback, d.now); ok {
			failing[w.Path] = why
		} else {
			delete(d.Capped, w.Path)
		}
	}
	return failing
}

// advance moves an outage to its next phase if it is time. It reports whether the outage is over.
func (d *decision) advance(o *Outage) bool {
	switch o.phase(d.now) {
	case Out:
	case Probing:
		switch {
		case o.Phase == Out:
			o.turn(Probing, d.now)
			d.tellOf(o, Probing, "")
		case o.Bad > 0:
			// Not doubled: that is for repeated trips.
			d.send(o, Extended, "a probe failed")
		case o.Good >= probesNeeded:
			o.turn(Ramping, d.now)
			o.Until = d.now.Add(rampTime)
			for _, path := range o.Members {
				delete(d.counts, path)
			}
			d.tellOf(o, Ramping, "")
		}
	case Ramping, Back:
		if why, ok := d.failsAgain(o); ok {
			o.Trips++
			d.send(o, Out, why)
			break
		}
		if o.phase(d.now) == Back {
			d.remember(o.Name, o.Trips, d.now)
			d.tellOf(o, Back, "")
			return true
		}
	}
	return false
}

// failsAgain judges the handlers of an outage that are recovering.
func (d *decision) failsAgain(o *Outage) (string, bool) {
	for _, path := range o.Members {
		if why, ok := judge(d.counts[path], d.byPath[path].Fallback, d.now); ok {
			return why, true
		}
	}
	return "", false
}

// send turns the handlers of an outage off, for a time that depends on its trips.
func (d *decision) send(o *Outage, kind, why string) {
	var first, most time.Duration
	good, n := 0, 0
	for _, path := range o.Members {
		w := d.byPath[path]
		g, b, _ := counted(d.counts[path], w.Fallback, d.now)
		good, n = good+g, n+g+b
		first, most = max(first, w.Fallback.Duration), max(most, w.Fallback.MaxDuration)
		delete(d.counts, path)
		delete(d.Capped, path)
	}
	most = max(first, most)
	doubled := math.Min(float64(first)*math.Exp2(float64(o.Trips-1)), float64(most))
	o.turn(Out, d.now)
	o.Until = d.now.Add(time.Duration(doubled))
	if kind == Out {
		o.Why = why
	}
	if n > 0 {
		o.Ratio = ratioOf(good, n)
	}
	d.tellOf(o, kind, why)
}

// takeOut turns one handler off, unless too many are off already.
func (d *decision) takeOut(w Watched, why string) {
	if !d.mayGo(w) || !d.mayGoOfService(w.Service) {
		d.cap(w.Path, why)
		return
	}
	o := &Outage{Name: w.Path, Members: []string{w.Path}, Since: d.now, Trips: d.trips(w.Path)}
	d.Outages = append(d.Outages, o)
	d.send(o, Out, why)
}

// cap reports, once, that a failing handler has to stay on.
func (d *decision) cap(path, why string) {
	if _, known := d.Capped[path]; known {
		return
	}
	if d.Capped == nil {
		d.Capped = map[string]time.Time{}
	}
	d.Capped[path] = d.now
	d.tell(Change{Kind: Capped, Name: path, Paths: []string{path}, Why: why + "; too many others are out"})
}

// mayGo reports whether one more handler of the pipeline may be off.
func (d *decision) mayGo(w Watched) bool {
	pipeline, out := model.PipelineOf(w.Path), 0
	for _, o := range d.Outages {
		for _, path := range o.Members {
			if model.PipelineOf(path) == pipeline {
				out++
			}
		}
	}
	return out < atLeastOne(outShare, d.byPipeline[pipeline])
}

// mayGoOfService reports whether one more handler of a service may be off on its own.
func (d *decision) mayGoOfService(service string) bool {
	all, out := 0, 0
	for _, w := range d.byService[service] {
		if !w.Critical {
			all++
		}
		if d.outage(w.Path) != nil {
			out++
		}
	}
	return service == "" || out < atLeastOne(serviceShare, all)
}

// atLeastOne returns the share of n, at least 1.
func atLeastOne(share float64, n int) int { return max(1, int(share*float64(n))) }

// trips returns the number of trips in a row, including this one.
func (d *decision) trips(name string) int {
	if p, ok := d.Past[name]; ok && d.now.Sub(p.Back) < relapse {
		return p.Trips + 1
	}
	return 1
}

// describe describes the counts for people.
func describe(good, bad int, over time.Duration) string {
	return fmt.Sprintf("%d of %d calls succeeded in %v", good, good+bad, over)
}
