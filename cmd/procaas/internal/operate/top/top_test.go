package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"procaas/engine/credentials"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/records"
	"procaas/engine/stats"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/cli")

// A topCase is a handler as top may find it.
func topCase(path string, perS float64, ratio, p50, p99 float64, change ...func(*stats.HandlerInfo)) stats.HandlerInfo {
	h := stats.HandlerInfo{Path: path, Calls: int64(perS * 60), CallsPerS: perS, Switch: "on"}
	if perS > 0 {
		h.SuccessRatio, h.LatencyP50, h.LatencyP99 = &ratio, &p50, &p99
	}
	minute := stats.Window{
		Period: "1m", Ended: h.Calls, Failed: int64(float64(h.Calls)*(1-ratio) + 0.5), PerS: perS, SuccessRatio: h.SuccessRatio,
		LatencyP50: h.LatencyP50, LatencyP99: h.LatencyP99,
	}
	h.Windows = []stats.Window{{Period: "10s"}, minute, {Period: "10m"}, {Period: "1h"}}
	for _, f := range change {
		f(&h)
	}
	return h
}

// tookCase are durations as top may find them: the 99th percentiles of the last minute, the last hour and the hour before.
func tookCase(ended int64, minute, hour, before float64) stats.Spans {
	half := hour / 2
	return stats.Spans{
		Minute: stats.Span{Ended: ended / 60, P99: &minute}, Hour: stats.Span{Ended: ended, P50: &half, P99: &hour},
		HourBefore: stats.Span{Ended: ended, P99: &before},
	}
}

func topExample() topView {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	until := at.Add(4 * time.Minute)
	return topView{
		server: "https://procaas.example", order: "failures", at: at, nodes: 3, runs: 12, asked: 1,
		memory: []nodeMemory{
			{Node: 1, Name: "host-1", MemoryView: records.MemoryView{Limit: 2 << 30, Budget: 1 << 30, Used: 3 << 20}},
			{Node: 2, Name: "host-2", MemoryView: records.MemoryView{Limit: 1 << 30, Budget: 512 << 20, Used: 384 << 20, Waiting: 3}},
		},
		took: []stats.DurationView{
			{Path: "quick", Accepted: tookCase(40, 90, 110, 100)},
			{Path: "new-order-created", Accepted: tookCase(7200, 3200, 2900, 240)},
			{Path: "new-order-created/perform-notifications", Begun: tookCase(7200, 3050, 2800, 180)},
		},
		handlers: []stats.HandlerInfo{
			topCase("new-order-created/perform-notifications/notify-user", 10.04, 0.999, 4.2, 13),
			topCase("new-order-created/fetch-order/get-order", 1234.5, 1, 0.8, 1400, func(h *stats.HandlerInfo) {
				h.InFlight, h.Waiting, h.RateLimit, h.Owner, h.Critical = 256, 17, "100/s", "team-core", true
			}),
			topCase("new-order-created/miscellaneous/update-statistics", 3.7, 0.598, 3.2, 9.9, func(h *stats.HandlerInfo) {
				h.Fallback, h.Owner = &fallback.View{State: fallback.Out, Until: &until}, "team-statistics-and-more"
			}),
			topCase("new-order-created/miscellaneous/a-handler-with-quite-a-long-name", 0, 0, 0, 0, func(h *stats.HandlerInfo) {
				h.Switch, h.RateLimit, h.Effective = "hold", "10/m", []string{"rolled out to 25 %", "limited to 10/m"}
			}),
			topCase("a/b/c", 0.01, 0, 30000, 30000,
				func(h *stats.HandlerInfo) { h.Fallback = &fallback.View{State: fallback.Probing} }),
			topCase("a/b/d", 0, 0, 0, 0, func(h *stats.HandlerInfo) { h.Fallback = &fallback.View{State: fallback.In} }),
		},
	}
}

// TestTopDraws compares views of all sizes with testdata/cli/top.golden.
func TestTopDraws(t *testing.T) {
	t.Parallel()
	var have strings.Builder
	for _, s := range []screen{{}, {width: 80}, {width: 120, height: 7}, {width: 40}, {width: 80, color: true}} {
		for _, order := range topOrders() {
			if order != "failures" && s.width != 120 {
				continue
			}
			v := topExample()
			v.order = order
			v.arrange()
			if s.width == 40 {
				v.trouble = "https://procaas.example: connection refused, and that for a while already"
			}
			drawn := string(v.draw(&s))
			fmt.Fprintf(&have, "width %d, height %d, color %v, by %s\n%s\n", s.width, s.height, s.color, order,
				strings.ReplaceAll(drawn, "\x1b", "ESC"))
			lines := strings.Split(strings.TrimSuffix(drawn, "\n"), "\n")
			for _, line := range lines {
				if bare := regexp.MustCompile("\x1b\\[\\d+m").ReplaceAllString(line, ""); s.width > 0 && utf8.RuneCountInString(bare) > s.width {
					t.Errorf("want at most %d columns, have %q", s.width, bare)
				}
			}
			if s.height > 0 && len(lines) >= s.height {
				t.Errorf("want less than %d lines, have %d", s.height, len(lines))
			}
		}
	}
	goldenText(t, "top.golden", have.String())
}

// goldenText compares a text with a file of testdata/cli.
func goldenText(t *testing.T, name, have string) {
	t.Helper()
	file := filepath.Join("..", "..", "..", "..", "..", "testdata", "cli", name)
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("%s is not what is printed; have\n%s", file, have)
	}
}

// A person on call sees at once what is down, who switched what off and until when, and why calls fail.
func TestTopTellsOfTroubles(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	before := func(d time.Duration) *time.Time { x := at.Add(-d); return &x }
	soon, late, three := at.Add(10*time.Minute), at.Add(-time.Minute), 3
	v := topView{
		server: "https://procaas.example", order: "path", at: at, nodes: 2, asked: 2,
		handlers: []stats.HandlerInfo{
			topCase("work/s/failing", 1, 0.5, 4.2, 13, func(h *stats.HandlerInfo) {
				h.LastFailure, h.LastSuccess, h.LastError = before(12*time.Second), before(time.Second), "503 Service Unavailable from\nhttp://127.0.0.1:9/pay"
			}),
			topCase("work/s/long-ago", 1, 1, 4.2, 13, func(h *stats.HandlerInfo) {
				h.LastFailure, h.LastSuccess, h.LastError = before(time.Hour), before(time.Second), "timeout"
			}),
			topCase("work/s/off", 0, 0, 0, 0, func(h *stats.HandlerInfo) { h.Switch = "off" }),
			topCase("work/t/held", 0, 0, 0, 0, func(h *stats.HandlerInfo) {
				h.Switch, h.LastFailure, h.LastError = "hold", before(2*time.Hour), "connection refused"
				h.Fallback = &fallback.View{State: fallback.Frozen, Since: before(time.Minute), Reason: "half of all services fail at once"}
			}),
		},
		controls: []guard.ControlView{
			{Path: "work/s/off", Control: guard.Control{Mode: guard.ModeSkip, Until: &soon}, By: "alice", Reason: "push is down"},
			{Path: "work/t/held", Control: guard.Control{Mode: guard.ModeHold, Until: &late}, By: "over"},
			{Path: "work/t", Control: guard.Control{Mode: guard.ModeHold}, By: "bob"},
		},
		services: []guard.ServiceInfo{
			{ID: "pay", FailingSince: before(252 * time.Second), LastError: "503 Service Unavailable"},
			{ID: "push", ClosedUntil: &soon},
			{ID: "fine"},
			{ID: "slow", Adaptive: true, Limit: &three, Waiting: 2, Parked: 5},
		},
		backlog: stats.BacklogView{Counted: before(0), Waiting: 17, AgeS: 12, Behind: []stats.BehindRuns{{Pipeline: "work", Runs: 9}},
			Refused: []credentials.Refused{{Token: "shop", Items: 40, Since: *before(time.Minute)}}, Parked: []stats.ParkedRuns{
				{Pipeline: "work", Reason: stats.ParkedService, For: "pay", Runs: 40, AgeS: 250},
				{Pipeline: "work", Reason: stats.ParkedTime, Runs: 1000, AgeS: 5000},
				{Pipeline: "other", Reason: stats.ParkedHold, For: "other", Runs: 1, AgeS: 61},
			}},
	}
	v.addServices([]guard.ServiceInfo{{ID: "fine", FailingSince: before(3 * time.Second)}, {ID: "pay", FailingSince: before(time.Second)}})
	v.arrange()
	goldenText(t, "top_troubles.golden", string(v.draw(&screen{})))
}

// A person on call sees the owners and what can wait, wherever 120 columns or the terminal have room.
func TestTopTellsOwnersAndWhatIsCritical(t *testing.T) {
	t.Parallel()
	core := func(h *stats.HandlerInfo) { h.Owner, h.Critical = "team-core", true }
	v := topView{at: time.Now(), handlers: []stats.HandlerInfo{
		topCase("work/s/pay", 1, 1, 4.2, 13, core), topCase("work/s/tell", 1, 1, 4.2, 13),
	}}
	for _, s := range []screen{{}, {width: 120}, {width: 100}} {
		have := string(v.draw(&s))
		for _, want := range []string{
			`PATH .* WAIT CRIT OWNER     STATE\n`, `work/s/pay .* - yes  team-core on\n`, `work/s/tell .* - -    -         on\n`,
		} {
			if !regexp.MustCompile(want).MatchString(have) {
				t.Errorf("width %d: want %s, have\n%s", s.width, want, have)
			}
		}
	}
	v.handlers[0].Path = strings.Repeat("a-long-name/", 5)
	for _, s := range []screen{{}, {width: 120}, {width: 80}} {
		have := string(v.draw(&s))
		for line := range strings.Lines(have) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 || s.width > 0 && n > s.width {
				t.Errorf("width %d: want no columns that make lines longer than 120, have %d: %s", s.width, n, line)
			}
		}
		if shows := strings.Contains(have, "OWNER"); shows != (s.width == 120) {
			t.Errorf("width %d: owners are shown: %v", s.width, shows)
		}
	}
}

// A person on call sees that all runs of a pipeline fail, whatever its handlers say, and how many end a second.
func TestTopTellsOfRuns(t *testing.T) {
	t.Parallel()
	ratio := 0.25
	runs := func(ended, failed int64) (out []stats.PipelineWindow) {
		for _, period := range stats.Periods() {
			w := stats.Window{Period: period, Ended: ended, Failed: failed, PerS: float64(ended) / 10, SuccessRatio: &ratio}
			out = append(out, stats.PipelineWindow{Window: w, Accepted: 100, AcceptedPerS: 10})
		}
		return out
	}
	v := topView{at: time.Now(), window: "10s", handlers: []stats.HandlerInfo{topCase("work/s/pay", 1, 1, 4.2, 13)}, piped: []stats.PipelineInfo{
		{Pipeline: "work", Windows: runs(80, 60)}, {Pipeline: "fine", Windows: runs(20, 0)},
	}}
	v.piped[1].Windows = nil // an older node
	v.addPipelines([]stats.PipelineInfo{{Pipeline: "work", Windows: runs(80, 60)}, {Pipeline: "unknown"}})
	have := string(v.draw(&screen{}))
	for _, want := range []string{
		"20.0 events/s in 10s; runs ended a second: 10s 16.0 (75.0% failed), 1m 16.0", "pipelines failing: work, 25.0% of its runs succeed",
		"work/s/pay       -      -",
	} {
		if !strings.Contains(have, want) {
			t.Errorf("want %q, have\n%s", want, have)
		}
	}
}

func TestTopAddsWhatOtherNodesHaveSeen(t *testing.T) {
	t.Parallel()
	failed := time.Now()
	v := topView{handlers: []stats.HandlerInfo{topCase("a/b/c", 10, 1, 5, 50), topCase("a/b/d", 0, 0, 0, 0)}}
	v.add([]stats.HandlerInfo{
		topCase("a/b/c", 30, 0.5, 4, 80, func(h *stats.HandlerInfo) { h.InFlight, h.LastFailure, h.LastError = 2, &failed, "no luck" }),
		topCase("a/b/d", 2, 0.25, 7, 9), topCase("a/b/unknown", 1, 1, 1, 1),
	})
	c, d := v.handlers[0], v.handlers[1]
	if c.CallsPerS != 40 || *c.SuccessRatio != 0.625 || *c.LatencyP50 != 5 || *c.LatencyP99 != 80 || c.InFlight != 2 ||
		c.LastError != "no luck" {
		t.Errorf("want both together, have %+v", c)
	}
	if d.CallsPerS != 2 || *d.SuccessRatio != 0.25 || *d.LatencyP99 != 9 || len(v.handlers) != 2 {
		t.Errorf("want the other's alone, have %+v of %d", d, len(v.handlers))
	}
}
