package drawing_test

import (
	"slices"
	"testing"
	"time"

	"procaas/engine/api/ui/drawing"
	"procaas/engine/checkpoint"
	"procaas/engine/explain"
)

// A run of two calls of 10 ms, with a wait between them.
func waited(wait time.Duration) explain.Story {
	began := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	at := func(after time.Duration) *time.Time { t := began.Add(after); return &t }
	call := func(path string, from, to time.Duration) explain.StoryStep {
		return explain.StoryStep{
			Path: path, Outcome: "succeeded",
			Handler: &checkpoint.HandlerView{Path: path, Outcome: "succeeded", Started: at(from), Finished: at(to)},
		}
	}
	const ms = time.Millisecond
	return explain.Story{
		Run: checkpoint.RunView{Accepted: began, Started: &began, Finished: at(wait + 20*ms)},
		Stages: []explain.StoryStage{{ID: "s", Steps: []explain.StoryStep{
			call("p/s/first", 0, 10*ms), call("p/s/rest", 10*ms, wait+10*ms), call("p/s/last", wait+10*ms, wait+20*ms),
		}}},
	}
}

// A wait of half an hour leaves the calls before and after it visible. A wait that is not so long is drawn as it is.
func TestLongWaitsAreCutShort(t *testing.T) {
	t.Parallel()
	d := drawing.NewTimeline(waited(30*time.Minute), time.Time{})
	if len(d.Cuts) != 1 || d.Cuts[0].Title != "cut short: 30 min 0 s" {
		t.Fatalf("want one cut of 30 min, have %+v", d.Cuts)
	}
	for _, row := range []int{0, 2} {
		if bar := d.Rows[row].Bars[0]; bar.Width < 300 {
			t.Errorf("want %s on a third of the width or more, have %+v", d.Rows[row].Name, bar)
		}
	}
	if first, last := d.Ticks[0], d.Ticks[len(d.Ticks)-1]; first != "0 ms" || last != "30 min 0 s" {
		t.Errorf("want ticks from 0 ms to 30 min 0 s, have %q", d.Ticks)
	}

	d = drawing.NewTimeline(waited(100*time.Millisecond), time.Time{})
	if len(d.Cuts) > 0 || d.Rows[1].Bars[0].X < 80 || d.Rows[1].Bars[0].Width < 800 {
		t.Errorf("want the wait as it is, have %+v, %+v", d.Rows[1].Bars, d.Cuts)
	}
	if want := []string{"0 ms", "30 ms", "60 ms", "90 ms", "120 ms"}; !slices.Equal(d.Ticks, want) {
		t.Errorf("want ticks %q, have %q", want, d.Ticks)
	}
}
