package fallback

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// A handler that an operator has put back does not go out with its service again,
// but by its own failures.
func TestHandlerThatWasPutBackGoesOutForItsOwnFailuresOnly(t *testing.T) {
	t.Parallel()
	spec := &tree.Fallback{MinSuccessRatio: 0.5, Window: 30 * time.Second, MinCalls: 10, Duration: time.Minute, MaxDuration: time.Minute}
	var watched []Watched
	for i := range 4 {
		watched = append(watched, Watched{Path: fmt.Sprintf("p%d/s/h", i), Service: "push", Fallback: spec})
	}
	f, s, counts := NewRules(watched), State{}, Counts{}
	now := time.Unix(1_800_000_000, 0)
	pass := func(seconds int, calls map[string]model.Tally) {
		for range seconds {
			var tallies []model.Tally
			for path, c := range calls {
				tallies = append(tallies, model.Tally{Path: path, Second: now.Unix(), Good: c.Good, Bad: c.Bad})
			}
			now = now.Add(time.Second)
			f.Decide(&s, counts, now, tallies)
		}
	}
	bad := map[string]model.Tally{}
	for _, w := range watched {
		bad[w.Path] = model.Tally{Bad: 5}
	}
	pass(5, bad)
	if o := s.named("push"); o == nil || len(o.Members) != 4 {
		t.Fatalf("want the service out, have %+v", s.Outages)
	}
	const put = "p1/s/h"
	changes := s.end(func(path string) bool { return path == put }, now)
	if len(changes) != 1 || !slices.Equal(changes[0].Paths, []string{put}) || s.outage(put) != nil {
		t.Fatalf("want one handler back, have %+v", changes)
	}
	pass(10, nil)
	pass(5, map[string]model.Tally{put: {Good: 3, Bad: 1}})
	if s.outage(put) != nil {
		t.Fatalf("want it in the flow, have %+v", s.outage(put))
	}
	pass(30, map[string]model.Tally{put: {Bad: 5}})
	if s.outage(put) == nil {
		t.Error("want it out when its own calls fail")
	}
	s.end(func(string) bool { return true }, now)
	if len(s.Outages) != 0 || s.Past["push"].Back != now || s.Past[put].Back != now {
		t.Errorf("want everything back and remembered, have %+v", s)
	}
	pass(20, nil)
	if len(s.Outages) != 0 {
		t.Errorf("want no old failures counted, have %+v", s.Outages)
	}
}
