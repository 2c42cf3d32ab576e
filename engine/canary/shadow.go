package canary

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	mostDiffers  = 30  // differences that a trial tells apart
	mostSkipped  = 10  // reasons to skip runs that a trial tells apart
	mostExamples = 3   // runs that a kind names
	mostPiped    = 200 // pipelines that a trial tells apart
)

// Others is the pipeline and the reason of what is beyond these bounds.
const Others = "others"

// Shadowed has what the replays with a version in the shadow have found.
type Shadowed struct {
	Pipelines []Replays `json:"pipelines" doc:"The counts by pipeline. With more than 200, the rest counts as others."`
	Skipped   []Skip    `json:"skipped" doc:"The reasons why runs were not compared, the most frequent first. With more than 10, the rest counts as others."`
	Calls     int       `json:"calls" doc:"The calls that replays have made for real."`

	Differences []ShadowDifference `json:"differences" doc:"The differences, the most frequent first; at most 30. At most 8 of each run count."`
	Other       int                `json:"other" doc:"The number of other differences."`
}

func newShadowed() *Shadowed {
	return &Shadowed{Pipelines: []Replays{}, Differences: []ShadowDifference{}, Skipped: []Skip{}}
}

// Replays counts the runs of a pipeline that were replayed.
type Replays struct {
	Pipeline  string `json:"pipeline"`
	Same      int    `json:"same" doc:"The runs without a difference."`
	Different int    `json:"different" doc:"The runs with a difference."`
	Skipped   int    `json:"skipped" doc:"The runs that were not compared."`
}

// A ShadowDifference is a difference that some runs have. A run has it once.
type ShadowDifference struct {
	Pipeline string   `json:"pipeline"`
	Kind     string   `json:"kind" doc:"route, unknown, call added, call removed, service, request, attempts, outcome, event, status, result or slower."`
	Path     string   `json:"path" doc:"The handler, or the pipeline if it is about the run."`
	At       string   `json:"at" doc:"The part of the request or result; empty for the whole."`
	What     string   `json:"what" doc:"The difference in words."`
	Was      string   `json:"was" doc:"The value in the first of the runs."`
	Now      string   `json:"now" doc:"The value in its replay."`
	Runs     int      `json:"runs" doc:"How many runs have it."`
	First    int      `json:"first" doc:"In how many of them it is the first. In the others, it may only follow from another difference."`
	Examples []string `json:"examples" doc:"The ids of some of them."`
}

// A Skip counts runs that were not replayed, or cannot be compared.
type Skip struct {
	Why  string `json:"why" doc:"The reason."`
	Runs int    `json:"runs" doc:"The number of runs."`
}

// A Replay is the result of one replay, or a real call of it.
type Replay struct {
	Pipeline string             `json:"p,omitempty"`
	Differs  []ShadowDifference `json:"d,omitempty"` // by time; Examples may have the run
	Skip     string             `json:"s,omitempty"` // why it was not compared
	Call     bool               `json:"r,omitempty"` // it is a real call
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
	case len(r.Differs) > 0:
		p.Different += n
		for i, d := range r.Differs {
			s.differ(d, n, i == 0)
		}
		slices.SortStableFunc(s.Differences, func(a, b ShadowDifference) int {
			return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(b.First, a.First))
		})
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

func (s *Shadowed) differ(d ShadowDifference, n int, first bool) {
	i := slices.IndexFunc(s.Differences, func(k ShadowDifference) bool { return k.id() == d.id() })
	switch {
	case i >= 0:
	case len(s.Differences) >= mostDiffers:
		s.Other += n
		return
	default:
		i = len(s.Differences)
		s.Differences = append(s.Differences, ShadowDifference{
			Pipeline: d.Pipeline, Kind: d.Kind, Path: d.Path, At: d.At, Examples: []string{},
		})
	}
	k := &s.Differences[i]
	if k.What == "" {
		k.What, k.Was, k.Now = d.What, d.Was, d.Now
	}
	k.Runs += n
	if first {
		k.First += n
	}
	for _, run := range d.Examples {
		if len(k.Examples) < mostExamples && !slices.Contains(k.Examples, run) {
			k.Examples = append(k.Examples, run)
		}
	}
}

// id is the same for the same difference of several runs.
func (d *ShadowDifference) id() [4]string { return [4]string{d.Pipeline, d.Kind, d.Path, d.At} }

// Total returns the sums over all pipelines. The receiver may be nil.
func (s *Shadowed) Total() (all Replays) {
	if s == nil {
		return all
	}
	for _, p := range s.Pipelines {
		all.Same += p.Same
		all.Different += p.Different
		all.Skipped += p.Skipped
	}
	return all
}

// Text formats the counts for people.
func (r Replays) Text() string {
	return fmt.Sprintf("%d as before, %d different, %d skipped", r.Same, r.Different, r.Skipped)
}

// An Examples remembers for which differences a node has reported enough examples. The zero value is
// ready to use. It is for one goroutine.
type Examples struct {
	turn string
	of   map[[4]string]int
}

// Trim removes the example and the words from a difference that has enough of them. A report without
// them is equal to others, so that they are stored as one.
func (e *Examples) Trim(s *State, d *ShadowDifference) {
	if turn := s.turn(); e.turn != turn {
		e.turn, e.of = turn, map[[4]string]int{}
	}
	if n := e.of[d.id()]; n >= mostExamples || n == 0 && len(e.of) >= 2*mostDiffers {
		d.What = ""
		d.Was = ""
		d.Now = ""
		d.Examples = nil
		return
	}
	e.of[d.id()]++
}

// ForgetValues removes the values and the names of runs that are gone from the differences. It returns of how many. The receiver may
// be nil.
func (s *State) ForgetValues(gone func(run string) (bool, error)) (n int, err error) {
	if s == nil || s.Shadow == nil {
		return 0, nil
	}
	for i := range s.Shadow.Differences {
		d := &s.Shadow.Differences[i]
		kept := d.Examples[:0:0]
		for _, run := range d.Examples {
			is, err := gone(run)
			if err != nil {
				return n, err
			}
			if !is {
				kept = append(kept, run)
			}
		}
		if len(kept) < len(d.Examples) {
			d.Examples, n = append([]string{}, kept...), n+1
			d.What, d.Was, d.Now = "", "", "" // of which of them it was is not known
		}
	}
	return n, nil
}
