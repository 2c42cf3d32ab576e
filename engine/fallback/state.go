package fallback

import (
	"slices"
	"time"

	"procaas/engine/canary"
	"procaas/engine/model"
)

// A State is what all nodes share about handlers that are off. It is stored as JSON when it
// changes, which is rare. The zero value is that of a new cluster.
type State struct {
	Outages   []*Outage            `json:"outages,omitempty"` // no handler is in two of them
	Past      map[string]Past      `json:"past,omitempty"`    // by the name of the outage
	Capped    map[string]time.Time `json:"capped,omitempty"`  // failing paths that have to stay on, since when
	Frozen    time.Time            `json:"frozen,omitzero"`   // since when nothing is turned off
	FrozenWhy string               `json:"frozen_why,omitempty"`
	Canary    *canary.State        `json:"canary,omitempty"` // the last trial of a new version
}

// Counts are the counts of the deciding node, by path. A node that takes over counts again with
// [Rules.Recount].
type Counts map[string][]Count

// An Outage is the time from when a handler, or the handlers of a service, are turned off until all
// of their calls are made again.
type Outage struct {
	Name    string    `json:"name"` // a path, or a service
	Service bool      `json:"service,omitempty"`
	Members []string  `json:"members"` // paths, sorted
	Phase   string    `json:"phase"`   // Out, Probing or Ramping
	Since   time.Time `json:"since"`
	Turned  time.Time `json:"turned"`          // when the phase began
	Until   time.Time `json:"until"`           // the end of the phase; unknown for Probing
	Probed  time.Time `json:"probed,omitzero"` // when [State.TakeProbe] last gave a turn
	Good    int       `json:"good,omitempty"`  // successful probes
	Bad     int       `json:"bad,omitempty"`   // failed probes
	Trips   int       `json:"trips"`           // in a row, including this one
	Ratio   float64   `json:"ratio"`           // success ratio of the calls that turned it off
	Why     string    `json:"why"`             // reason

	// Spared are handlers that operators have turned on again during the outage of their service.
	Spared []string `json:"spared,omitempty"`
}

// A Past remembers an ended outage.
type Past struct {
	Trips int       `json:"trips"` // in a row, including the last one
	Back  time.Time `json:"back"`  // when it ended
}

// An Admission says what to do with one call.
type Admission int

// These are the ways to handle a call.
const (
	AdmitCall  Admission = iota // make it
	AdmitSkip                   // skip the handler
	AdmitProbe                  // make it if [State.TakeProbe] gives you the turn, otherwise skip the handler
)

// Admit decides about one call of a handler. chance is a number from 0 up to 1. It chooses a share
// of the calls while the handler recovers.
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

// TakeProbe takes the turn to test whether a handler works again: one call a second. It is for a
// single process. Nodes that share a store use [store.Degradation].
func (s *State) TakeProbe(path string, now time.Time) bool {
	o := s.outage(path)
	if o == nil || o.phase(now) != Probing || now.Sub(o.Probed) < time.Second {
		return false
	}
	o.Probed = now
	return true
}

// outage returns the outage of a handler, or nil.
func (s *State) outage(path string) *Outage {
	for _, o := range s.Outages {
		if slices.Contains(o.Members, path) {
			return o
		}
	}
	return nil
}

// turnedOff lists the handlers that are off or recovering.
func (s *State) turnedOff() (paths []string) {
	for _, o := range s.Outages {
		paths = append(paths, o.Members...)
	}
	return paths
}

// named returns the outage of a whole service, or nil.
func (s *State) named(service string) *Outage {
	for _, o := range s.Outages {
		if o.Service && o.Name == service {
			return o
		}
	}
	return nil
}

// end turns handlers on again at once for an operator. They trip again if calls fail from now on.
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

// remember saves what is needed to count trips in a row, and to ignore calls before the end of an
// outage.
func (s *State) remember(name string, trips int, now time.Time) {
	if s.Past == nil {
		s.Past = map[string]Past{}
	}
	s.Past[name] = Past{Trips: trips, Back: now}
}

// phase returns the phase at a time, even if no node has decided for a while.
func (o *Outage) phase(now time.Time) string {
	switch {
	case o.Phase == Out && !now.Before(o.Until):
		return Probing
	case o.Phase == Ramping && !now.Before(o.Until):
		return Back
	}
	return o.Phase
}

// began returns when the current phase began, even if no node has decided for a while. Calls that
// began before it do not count.
func (o *Outage) began(now time.Time) time.Time {
	if o.Phase == Out && !now.Before(o.Until) {
		return o.Until
	}
	return o.Turned
}

// end returns the end of the phase, or zero if it is unknown.
func (o *Outage) end() time.Time {
	if o.Phase == Probing {
		return time.Time{}
	}
	return o.Until
}

// turn begins a phase.
func (o *Outage) turn(phase string, now time.Time) {
	o.Phase = phase
	o.Turned = now
	o.Good = 0
	o.Bad = 0
}

// count adds a tally, if it is recent enough.
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

// recount adds a tally on which earlier decisions were based.
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

// forget drops counts that are too old, and handlers that no longer exist.
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
		counts = keepCounts(counts, window, d.now)
		if len(counts) == 0 {
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
