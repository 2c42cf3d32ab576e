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

// A Played is what came of one test, for people who want to see more than whether it
// passes.
type Played struct {
	Name     string
	Stories  []explain.Story    // of its runs, those accepted first
	Recorded []records.Recorded // those of its runs that have ended, for a replay
	Calls    []*Call            // in their order
	Problems []Difference
	Refused  []string // why events were not taken in
	Took     time.Duration
}

// Play runs the first tests of a suite, at most so many, and tells all about them. The
// error is that of ctx, or that a test cannot be run.
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
		// What is said twice, as a finding and as a refusal, is said once.
		p.Problems = slices.DeleteFunc(p.Problems, func(d Difference) bool { return strings.HasPrefix(d.Have, "refused: ") })
		out = append(out, p)
	}
	return out, nil
}
