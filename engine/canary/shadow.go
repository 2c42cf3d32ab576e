package canary

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
)

// This file has the counts of a version in the shadow. It gets no runs: nodes replay runs of the
// current version with it, and report each replay as a tally.

// InShadow is the phase of a version that no run uses, and with which nodes replay ended runs.
const InShadow = "shadow"

const (
	mostCauses   = 20  // kinds of differences that a trial tells apart
	mostSkipped  = 10  // reasons to skip runs that a trial tells apart
	mostExamples = 3   // runs that a kind names
	mostPiped    = 200 // pipelines that a trial tells apart
)

// Others is the pipeline and the reason of what is beyond these bounds.
const Others = "others"

// Shadowed has what the replays with a version in the shadow have found.
type Shadowed struct {
	Pipelines []Replays `json:"pipelines"` // by name
	Causes    []Cause   `json:"causes"`    // the most frequent first
	Other     int       `json:"other"`     // runs that differ in yet another thing
	Skipped   []Skip    `json:"skipped"`   // the most frequent first
	Calls     int       `json:"calls"`     // real calls
}

func newShadowed() *Shadowed {
	return &Shadowed{Pipelines: []Replays{}, Causes: []Cause{}, Skipped: []Skip{}}
}

// Replays counts the runs of a pipeline that were replayed.
type Replays struct {
	Pipeline  string `json:"pipeline"`
	Same      int    `json:"same"`
	Different int    `json:"different"`
	Skipped   int    `json:"skipped"`
}

// A Cause is the first difference of some runs.
type Cause struct {
	Pipeline string   `json:"pipeline"`
	Kind     string   `json:"kind"`
	Path     string   `json:"path"`
	At       string   `json:"at"`
	What     string   `json:"what"` // in words
	Was      string   `json:"was"`  // in the first of the runs
	Now      string   `json:"now"`
	Runs     int      `json:"runs"`
	Examples []string `json:"examples"` // some of the runs
}

// A Skip counts runs that were not replayed, or cannot be compared.
type Skip struct {
	Why  string `json:"why"`
	Runs int    `json:"runs"`
}

// A Replay is the result of one replay, or a real call of it.
type Replay struct {
	Pipeline string `json:"p,omitempty"`
	Cause    *Cause `json:"c,omitempty"` // its first difference; its Examples may have the run
	Skip     string `json:"s,omitempty"` // why it was not compared
	Call     bool   `json:"r,omitempty"` // it is a real call
}

// IsInShadow reports whether nodes replay runs with the new version.
func (s *State) IsInShadow() bool { return s != nil && s.Phase == InShadow }

// Lasts reports whether the trial has not ended.
func (s *State) Lasts() bool { return s.Runs() || s.IsInShadow() }

// Shadows reports whether a run is in the share that is replayed.
func (s *State) Shadows(run string) bool {
	return s.IsInShadow() && 100*model.Chance(run, InShadow) < s.Percent
}

// Tally returns the tally of a replay.
func (s *State) Tally(r Replay, now time.Time) model.Tally {
	text, _ := json.Marshal(r) // only texts and numbers
	return model.Tally{Path: s.shadowed() + string(text), Second: now.Unix(), Good: 1}
}

// shadowed is the prefix of tallies of replays.
func (s *State) shadowed() string { return tallied + s.turn() + " " + InShadow + " " }

// takeReplays counts the tallies of replays.
func (s *State) takeReplays(tallies []model.Tally) {
	for _, t := range tallies {
		text, ok := strings.CutPrefix(t.Path, s.shadowed())
		var r Replay
		if !ok || json.Unmarshal([]byte(text), &r) != nil {
			continue
		}
		if s.Shadow == nil { // an older procaas has written the state
			s.Shadow = newShadowed()
		}
		s.Shadow.add(r, t.Good)
	}
}

func (s *Shadowed) add(r Replay, n int) {
	if r.Call {
		s.Calls += n
		return
	}
	p := s.pipeline(r.Pipeline)
	switch {
	case r.Skip != "":
		p.Skipped += n
		s.skip(r.Skip, n)
	case r.Cause != nil:
		p.Different += n
		s.cause(*r.Cause, n)
	default:
		p.Same += n
	}
}

// pipeline returns the counts of a pipeline.
func (s *Shadowed) pipeline(id string) *Replays {
	i, found := slices.BinarySearchFunc(s.Pipelines, id, func(p Replays, id string) int { return cmp.Compare(p.Pipeline, id) })
	switch {
	case found:
	case len(s.Pipelines) >= mostPiped && id != Others:
		return s.pipeline(Others)
	default:
		s.Pipelines = slices.Insert(s.Pipelines, i, Replays{Pipeline: id})
	}
	return &s.Pipelines[i]
}

func (s *Shadowed) skip(why string, n int) {
	i := slices.IndexFunc(s.Skipped, func(k Skip) bool { return k.Why == why })
	if i < 0 {
		if len(s.Skipped) >= mostSkipped && why != Others {
			s.skip(Others, n)
			return
		}
		i = len(s.Skipped)
		s.Skipped = append(s.Skipped, Skip{Why: why})
	}
	s.Skipped[i].Runs += n
	slices.SortStableFunc(s.Skipped, func(a, b Skip) int { return b.Runs - a.Runs })
}

func (s *Shadowed) cause(c Cause, n int) {
	i := slices.IndexFunc(s.Causes, func(k Cause) bool { return k.id() == c.id() })
	switch {
	case i >= 0:
	case len(s.Causes) >= mostCauses:
		s.Other += n
		return
	default:
		i = len(s.Causes)
		s.Causes = append(s.Causes, Cause{Pipeline: c.Pipeline, Kind: c.Kind, Path: c.Path, At: c.At, Examples: []string{}})
	}
	k := &s.Causes[i]
	if k.What == "" {
		k.What, k.Was, k.Now = c.What, c.Was, c.Now
	}
	k.Runs += n
	for _, run := range c.Examples {
		if len(k.Examples) < mostExamples && !slices.Contains(k.Examples, run) {
			k.Examples = append(k.Examples, run)
		}
	}
	slices.SortStableFunc(s.Causes, func(a, b Cause) int { return b.Runs - a.Runs })
}

// id is the same for the same difference of several runs.
func (c Cause) id() [4]string { return [4]string{c.Pipeline, c.Kind, c.Path, c.At} }

// Compared returns how many runs were compared, and how many of them differ. The receiver may be
// nil.
func (s *Shadowed) Compared() (runs, differ int) {
	if s == nil {
		return 0, 0
	}
	for _, p := range s.Pipelines {
		runs += p.Same + p.Different
		differ += p.Different
	}
	return runs, differ
}

// An Examples remembers for which causes a node has reported enough examples. The zero value is
// ready to use. It is for one goroutine.
type Examples struct {
	turn string
	of   map[[4]string]int
}

// Trim removes the example and the words from a cause that has enough of them. A report without
// them is equal to others, so that they are stored as one.
func (e *Examples) Trim(s *State, c *Cause) {
	if turn := s.turn(); e.turn != turn {
		e.turn, e.of = turn, map[[4]string]int{}
	}
	if n := e.of[c.id()]; n >= mostExamples || n == 0 && len(e.of) >= 2*mostCauses {
		c.What, c.Was, c.Now, c.Examples = "", "", "", nil
		return
	}
	e.of[c.id()]++
}
