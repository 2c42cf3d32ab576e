package ui

import (
	"testing"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/explain"
)

// A comparison names what differs, and is silent about the rest.
func TestComparison(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	step := func(path, outcome string, lasted time.Duration, response any) explain.StoryStep {
		ended := began.Add(lasted)
		return explain.StoryStep{
			Path: path, Outcome: outcome, Response: response,
			Handler: &checkpoint.HandlerView{Started: &began, Finished: &ended},
		}
	}
	story := func(steps ...explain.StoryStep) explain.Story {
		return explain.Story{Stages: []explain.StoryStage{{Steps: steps}}}
	}
	d := newComparison([2]explain.Story{
		story(step("p/s/same", "succeeded", time.Millisecond, "a"), step("p/s/slow", "succeeded", time.Second, "a"),
			step("p/s/fails", "failed", 0, nil)),
		story(step("p/s/same", "succeeded", 3*time.Millisecond, "a"), step("p/s/slow", "succeeded", time.Millisecond, "b"),
			step("p/s/fails", "succeeded", 0, nil), step("p/s/new", "succeeded", 0, "c")),
	})
	type judged struct {
		path                  string
		outcome, slower, both bool
		result                int
	}
	var have []judged
	for _, r := range d.Rows {
		have = append(have, judged{r.Path, r.Outcome, r.Slower, r.Both, len(r.Result)})
	}
	want := []judged{
		{"p/s/same", false, false, true, 0},
		{"p/s/slow", false, true, true, 2},
		{"p/s/fails", true, false, true, 0},
		{"p/s/new", true, false, false, 0},
	}
	for i := range want {
		if len(have) != len(want) || have[i] != want[i] {
			t.Fatalf("want %v, have %v", want, have)
		}
	}
	if d.Event != nil || d.State != nil {
		t.Errorf("want no differences of the event and the state, have %v, %v", d.Event, d.State)
	}
}
