package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// goodHistory is one key from open to close, all as it should be.
func goodHistory() *history {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	h := &history{
		sent: []sentEvent{
			{run: "r1", key: "k", kind: "open", n: 1},
			{run: "r2", key: "k", kind: "work", n: 2},
			{run: "r3", key: "k", kind: "close", n: 3},
			{run: "r4", key: "k", kind: "work", n: 4, late: true},
		},
		runs: []endedRun{
			{"r1", "k", "open", "succeeded"},
			{"r2", "k", "work", "succeeded"},
			{"r3", "k", "close", "succeeded"},
			{"r4", "k", "work", "ignored"},
			{"r5", "k", "note", "succeeded"},
		},
	}
	for i, c := range []struct {
		run, path string
		n, count  int
	}{
		{"r1", "open/stage-1/call", 1, 0},
		{"r2", "work/stage-1/left", 2, 0},
		{"r2", "work/stage-1/right", 2, 0},
		{"r2", "work/stage-2/left", 2, 0},
		{"r2", "work/stage-3/sum", 2, 1},
		{"r5", "note/stage-1/call", 2, 0},
		{"r3", "close/stage-1/call", 3, 0},
	} {
		h.calls = append(h.calls, heardCall{
			node: 1, run: c.run, path: c.path, token: c.run + c.path, key: "k", n: c.n, count: c.count,
			start: at(10 * i), applied: at(10*i + 5), answered: true,
		})
	}
	return h
}

// The torture test is worth what its checks are: each must see the fault it is for.
func TestHistoryChecksSeeEachFault(t *testing.T) {
	t.Parallel()
	if wrong := goodHistory().violations(); len(wrong) > 0 {
		t.Fatalf("a good history is refused: %q", wrong)
	}
	again := func(h *history, i int, later time.Duration) *heardCall {
		c := h.calls[i]
		c.start, c.applied, c.node = c.start.Add(later), c.applied.Add(later), 2
		h.calls = append(h.calls, c)
		return &h.calls[len(h.calls)-1]
	}
	for _, test := range []struct {
		want string
		harm func(h *history)
	}{
		{"run r2 is lost", func(h *history) { h.runs = slices.Delete(h.runs, 1, 2) }},
		{"nobody was told", func(h *history) { h.runs = append(h.runs, endedRun{"r9", "k", "work", "succeeded"}) }},
		{"is failed, want succeeded", func(h *history) { h.runs[0].status = "failed" }},
		{"is succeeded, want ignored", func(h *history) { h.runs[3].status = "succeeded" }},
		{"given to two events", func(h *history) { h.sent[2].run = "r1" }},
		{"1 notes are missing", func(h *history) { h.runs = h.runs[:4] }},
		{"-1 notes are missing", func(h *history) { h.runs = append(h.runs, endedRun{"r6", "k", "note", "succeeded"}) }},
		{"has called with the keys", func(h *history) { again(h, 0, time.Millisecond).token = "another" }},
		{"with the same key", func(h *history) { h.calls[1].token = h.calls[2].token }},
		{"has had no effect", func(h *history) { h.calls[2].applied = time.Time{} }},
		{"was called for no event", func(h *history) { again(h, 0, time.Hour).run = "r4" }},
		{"counts 2, want 1", func(h *history) { h.calls[4].count = 2 }},
		{"before the end of", func(h *history) { h.calls[3].start = h.calls[2].applied.Add(-time.Millisecond) }},
		{"before the end of", func(h *history) { h.calls[6].start = h.calls[4].applied.Add(-time.Millisecond) }},
		{"was called again by node 2", func(h *history) { again(h, 3, time.Second) }},
		{"was called again by node 2", func(h *history) {
			again(h, 3, 3*time.Second)
			h.lapses = []lapse{{node: 2, at: h.calls[3].start.Add(time.Second)}}
		}},
	} {
		h := goodHistory()
		test.harm(h)
		if wrong := h.violations(); !slices.ContainsFunc(wrong, func(s string) bool { return strings.Contains(s, test.want) }) {
			t.Errorf("want a violation that says %q, have %q", test.want, wrong)
		}
	}
}

func TestHistoryChecksAllowWhatFaultsExplain(t *testing.T) {
	t.Parallel()
	for what, explain := range map[string]func(h *history, first *heardCall){
		"a call that failed":              func(_ *history, c *heardCall) { c.applied, c.answered = time.Time{}, false },
		"a call whose answer was lost":    func(_ *history, c *heardCall) { c.answered = false },
		"a call of a process that lapsed": func(h *history, c *heardCall) { h.lapses = []lapse{{c.node, c.applied}} },
		"a call heard after its process's end": func(h *history, c *heardCall) {
			h.lapses = []lapse{{c.node, c.start.Add(-time.Millisecond)}}
		},
		"a call whose outcome could not be saved for long": func(h *history, c *heardCall) {
			h.calls[len(h.calls)-1].start = c.start.Add(settling)
			h.lapses = []lapse{{c.node, c.start.Add(settling + time.Second)}}
		},
	} {
		h := goodHistory()
		last := len(h.calls) - 1
		second := h.calls[last]
		second.start, second.applied, second.node = second.start.Add(time.Second), second.applied.Add(time.Second), 2
		h.calls = append(h.calls, second)
		explain(h, &h.calls[last])
		if wrong := h.violations(); len(wrong) > 0 {
			t.Errorf("%s: have %q", what, wrong)
		}
	}
}

// A node is killed during a call. The next node makes it again and goes on, while the service still works on the first one. A step that
// begins before the effect of either is wrong.
func TestHistoryChecksCountTheFirstEffect(t *testing.T) {
	t.Parallel()
	for answered, want := range map[time.Duration]string{time.Millisecond: "", time.Hour: "before the end of"} {
		h := goodHistory()
		again := h.calls[0]
		again.node, again.start, again.applied = 2, again.start.Add(time.Millisecond), again.start.Add(time.Millisecond+answered)
		late := &h.calls[0]
		late.answered, late.applied = false, h.calls[1].start.Add(time.Millisecond)
		h.lapses = []lapse{{late.node, late.start}}
		h.calls = append(h.calls, again)
		if wrong := strings.Join(h.violations(), "\n"); (wrong == "") != (want == "") || !strings.Contains(wrong, want) {
			t.Errorf("answered after %s: want %q, have %q", answered, want, wrong)
		}
	}
}
