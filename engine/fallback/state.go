package fallback

import (
	"slices"
	"time"

	"procaas/engine/canary"
	"procaas/engine/model"
)

// A State is what all nodes share about handlers that are out of the flow.
// It is plain data, to be stored as JSON when it changes, which is seldom. The zero
// value is that of a new cluster.
type State struct {
	Outages   []*Outage            `json:"outages,omitempty"` // no handler is in two
	Past      map[string]Past      `json:"past,omitempty"`    // by the name of the outage
	Capped    map[string]time.Time `json:"capped,omitempty"`  // paths that fail but have to stay, since when
	Frozen    time.Time            `json:"frozen,omitzero"`   // since when nothing goes out
	FrozenWhy string               `json:"frozen_why,omitempty"`
	Canary    *canary.State        `json:"canary,omitempty"` // the last trial of a new version
}

// Counts is what the node that decides has counted, by path. Another one
// that takes over counts again, with [Rules.Recount].
type Counts map[string][]Count

// An Outage is the time that a handler, or the handlers of a service, spend out of
// the flow, until all of their calls are made again.
type Outage struct {
	Name    string    `json:"name"` // a path, or a service
	Service bool      `json:"service,omitempty"`
	Members []string  `json:"members"` // paths, in order
	Phase   string    `json:"phase"`   // Out, Probing or Ramping
	Since   time.Time `json:"since"`
	Turned  time.Time `json:"turned"`          // when the phase began
	Until   time.Time `json:"until"`           // the end of the phase; of Probing nobody knows it
	Probed  time.Time `json:"probed,omitzero"` // when [State.TakeProbe] gave a turn last
	Good    int       `json:"good,omitempty"`  // probes that succeeded
	Bad     int       `json:"bad,omitempty"`   // and failed
	Trips   int       `json:"trips"`           // in a row, this one included
	Ratio   float64   `json:"ratio"`           // of the calls that sent it out, how many succeeded
	Why     string    `json:"why"`             // it went out

	// Spared are handlers of a service that operators have put back into the flow
	// while it was out.
	Spared []string `json:"spared,omitempty"`
}

// A Past is what an outage leaves behind.
type Past struct {
	Trips int       `json:"trips"` // in a row, the last one included
	Back  time.Time `json:"back"`  // when it ended
}

// An Admission says what to do with one call.
type Admission int

// What may become of a call.
const (
	AdmitCall  Admission = iota // make it
	AdmitSkip                   // skip the handler
	AdmitProbe                  // make it if [State.TakeProbe] gives you the turn, else skip
)

// Admit decides about one call of a handler. Chance is a number from 0 up to 1, by
// which a share of the calls is chosen while the handler comes back.
func (s *State) Admit(path string, now time.Time, chance float64) Admission {
	if o := s.outage(path); o != nil {
		return o.admit(now, chance)
	}
	return AdmitCall
}

// admit decides about one call of a member.
func (o *Outage) admit(now time.Time, chance float64) Admission {
	switch o.phase(now) {
	case Out:
		return AdmitSkip
	case Probing:
		if now.Sub(o.Probed) < time.Second {
			return AdmitSkip
		}
		return AdmitProbe
	case Ramping:
		done := float64(now.Sub(o.Turned)) / float64(rampTime)
		if chance >= rampStart+(1-rampStart)*done {
			return AdmitSkip
		}
	}
	return AdmitCall
}

// TakeProbe takes the turn to try whether a handler works again: one call a second.
// It is for one process alone; nodes that share a store take turns by
// [store.Degradation].
func (s *State) TakeProbe(path string, now time.Time) bool {
	o := s.outage(path)
	if o == nil || o.phase(now) != Probing || now.Sub(o.Probed) < time.Second {
		return false
	}
	o.Probed = now
	return true
}

// outage finds the outage of a handler; nil when there is none.
func (s *State) outage(path string) *Outage {
	for _, o := range s.Outages {
		if slices.Contains(o.Members, path) {
			return o
		}
	}
	return nil
}

// named finds the outage of a whole service; nil when there is none.
func (s *State) named(service string) *Outage {
	for _, o := range s.Outages {
		if o.Service && o.Name == service {
			return o
		}
	}
	return nil
}

// end puts handlers back into the flow at once, because somebody wants it. They go
// out again when calls fail from now on.
func (s *State) end(in func(path string) bool, now time.Time) []Change {
	var changes []Change
	s.Outages = slices.DeleteFunc(s.Outages, func(o *Outage) bool {
		var back []string
		o.Members = slices.DeleteFunc(o.Members, func(path string) bool {
			if in(path) {
				back = append(back, path)
			}
			return in(path)
		})
		if len(back) == 0 {
			return false
		}
		o.Spared = append(o.Spared, back...)
		over := len(o.Members) == 0
		if over && o.Service {
			s.remember(o.Name, o.Trips, now)
		}
		for _, path := range back {
			s.remember(path, o.Trips, now)
		}
		changes = append(changes, Change{
			Kind: Back, Name: o.Name, Service: o.Service, Paths: back, Since: o.Since, Ratio: o.Ratio, Trips: o.Trips,
		})
		return over
	})
	return changes
}

// remember keeps what is needed to tell whether an outage was one of a row, and
// which calls were before its end.
func (s *State) remember(name string, trips int, now time.Time) {
	if s.Past == nil {
		s.Past = map[string]Past{}
	}
	s.Past[name] = Past{Trips: trips, Back: now}
}

// phase returns the phase at a time, even when no node has decided for a while.
func (o *Outage) phase(now time.Time) string {
	switch {
	case o.Phase == Out && !now.Before(o.Until):
		return Probing
	case o.Phase == Ramping && !now.Before(o.Until):
		return Back
	}
	return o.Phase
}

// began gives when the present phase began, even when no node has decided for a
// while. What calls came to that began before says nothing about it.
func (o *Outage) began(now time.Time) time.Time {
	if o.Phase == Out && !now.Before(o.Until) {
		return o.Until
	}
	return o.Turned
}

// end returns the end of the phase; zero when nobody knows it.
func (o *Outage) end() time.Time {
	if o.Phase == Probing {
		return time.Time{}
	}
	return o.Until
}

// turn begins a phase.
func (o *Outage) turn(phase string, now time.Time) {
	o.Phase, o.Turned, o.Good, o.Bad = phase, now, 0, 0
}

// count takes in what some calls came to, if it says anything about now.
func (d *decision) count(t model.Tally) {
	w := d.byPath[t.Path]
	if w == nil || t.Good+t.Bad == 0 || t.Second > d.now.Unix() {
		return
	}
	if o := d.outage(t.Path); o != nil {
		if t.Second < o.Turned.Unix() || o.Phase == Out {
			return
		}
		if o.Phase == Probing {
			o.Good += t.Good
			o.Bad += t.Bad
			return
		}
	}
	d.counts[t.Path] = addCount(d.counts[t.Path], Count{t.Second, t.Good, t.Bad})
}

// recount takes in what some calls came to that others have acted on already.
func (d *decision) recount(t model.Tally) {
	w, o := d.byPath[t.Path], d.outage(t.Path)
	if w == nil || o != nil && o.Phase != Ramping {
		return
	}
	for _, name := range []string{w.Path, w.Service} {
		if p, ok := d.Past[name]; ok && t.Second < p.Back.Add(-rampTime).Unix() {
			return
		}
	}
	d.count(t)
}

// forget drops what is too old to matter, and handlers that there are no more.
func (d *decision) forget() {
	for path, counts := range d.counts {
		w := d.byPath[path]
		if w == nil {
			delete(d.counts, path)
			continue
		}
		window := serviceFallback().Window
		if w.Fallback != nil {
			window = max(window, w.Fallback.Window)
		}
		if counts = keepCounts(counts, window, d.now); len(counts) == 0 {
			delete(d.counts, path)
		} else {
			d.counts[path] = counts
		}
	}
	gone := func(path string) bool { return d.byPath[path] == nil || d.byPath[path].Fallback == nil }
	d.Outages = slices.DeleteFunc(d.Outages, func(o *Outage) bool {
		o.Members = slices.DeleteFunc(o.Members, gone)
		return len(o.Members) == 0
	})
	for path := range d.Capped {
		if gone(path) {
			delete(d.Capped, path)
		}
	}
	for name, p := range d.Past {
		if d.now.Sub(p.Back) >= relapse {
			delete(d.Past, name)
		}
	}
}
