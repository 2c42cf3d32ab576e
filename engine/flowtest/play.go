package flowtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"procaas/engine/explain"
	"procaas/engine/records"
	"procaas/engine/store"
)

// A Played has the details of one test, for people who want to see more than whether it passes.
type Played struct {
	Name     string
	Stories  []explain.Story    // of its runs, oldest first
	Recorded []records.Recorded // its ended runs, for a replay
	Calls    []*Call            // in order
	Problems []Difference
	Refused  []string // why events were refused
	Took     time.Duration
}

// Play runs up to most of the first tests of a suite, and returns their details. The error is that
// of ctx, or says that a test cannot be run.
func (s *Suite) Play(ctx context.Context, most int) ([]Played, error) {
	var out []Played
	for _, test := range s.File.Tests[:min(most, len(s.File.Tests))] {
		p := Played{Name: test.Name}
		t, err := s.tryThen(ctx, test, Variant{}, nil, func(t *trial) error {
			for _, r := range t.runs {
				story, err := t.v.Engine().Story(ctx, r.ID)
				if errors.Is(err, explain.ErrNoHandler) {
					story = explain.Story{Run: r} // no pipeline has served its event
				} else if err != nil {
					return err
				}
				p.Stories = append(p.Stories, story)
			}
			recorded, _, err := t.v.Engine().Recorded(ctx, store.RunFilter{Limit: maxRuns})
			p.Recorded = recorded
			return err
		})
		if err != nil {
			return out, err
		}
		p.Calls, p.Problems, p.Took = t.calls, t.found, t.ended
		for _, h := range t.handed {
			if h.refused != nil {
				p.Refused = append(p.Refused, h.event.Type+": "+strings.TrimSpace(h.refused.Message))
			}
		}
		// Do not repeat a refusal as a finding.
		p.Problems = slices.DeleteFunc(p.Problems, func(d Difference) bool { return strings.HasPrefix(d.Have, "refused: ") })
		out = append(out, p)
	}
	return out, nil
}
