package drawing

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/explain"
	"procaas/engine/model"
)

// The history of a run tells each attempt and why it failed, in the order of time. The last line of a handler is its outcome.
func TestHistoryOfARun(t *testing.T) {
	t.Parallel()
	accepted := time.Unix(1_700_000_000, 0)
	at := func(ms int) *time.Time { a := accepted.Add(time.Duration(ms) * time.Millisecond); return &a }
	retried := explain.StoryStep{
		Path:    "p/s/a",
		Handler: &checkpoint.HandlerView{Outcome: "succeeded", Started: at(10), Finished: at(40)},
		Tries:   []explain.TryView{{Number: 1, Began: *at(10), Ended: at(20), Error: "503"}, {Number: 2, Began: *at(30), Ended: at(40)}},
	}
	skipped := explain.StoryStep{Path: "p/s/b", Handler: &checkpoint.HandlerView{Outcome: "skipped", Finished: at(5), Reason: "it is off"}}
	run := checkpoint.RunView{Accepted: accepted, Finished: at(41), Status: model.Succeeded}
	var have []string
	for _, h := range Happenings(explain.Story{
		Run:    run,
		Stages: []explain.StoryStage{{Steps: []explain.StoryStep{retried, skipped, {Path: "p/s/c"}}}},
	}) {
		have = append(have, strings.Join([]string{h.After, h.Path, h.Class, h.Text}, "|"))
	}
	want := []string{
		"+0 ms|||The event is accepted.", "+5 ms|p/s/b|skipped|skipped: it is off", "+10 ms|p/s/a|running|begins.",
		"+20 ms|p/s/a|waiting|attempt 1 fails: 503", "+30 ms|p/s/a|running|begins attempt 2.", "+40 ms|p/s/a|succeeded|succeeded",
		"+41 ms|||The run ends: succeeded.",
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("want\n%s\nhave\n%s", strings.Join(want, "\n"), strings.Join(have, "\n"))
	}
}
