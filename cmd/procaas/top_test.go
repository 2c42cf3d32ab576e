package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"procaas/engine"
	"procaas/engine/fallback"
)

// A topCase is a handler as top may find it.
func topCase(path string, perS float64, ratio, p50, p99 float64, change ...func(*engine.HandlerInfo)) engine.HandlerInfo {
	h := engine.HandlerInfo{Path: path, Calls: int64(perS * 60), CallsPerS: perS, Switch: "on"}
	if perS > 0 {
		h.SuccessRatio, h.LatencyP50, h.LatencyP99 = &ratio, &p50, &p99
	}
	for _, f := range change {
		f(&h)
	}
	return h
}

func topExample() topView {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	until := at.Add(4 * time.Minute)
	return topView{
		server: "https://procaas.example", order: "failures", at: at, nodes: 3, runs: 12, asked: 1,
		handlers: []engine.HandlerInfo{
			topCase("new-order-created/perform-notifications/notify-user", 10.04, 0.999, 4.2, 13),
			topCase("new-order-created/fetch-order/get-order", 1234.5, 1, 0.8, 1400, func(h *engine.HandlerInfo) {
				h.InFlight, h.Waiting,
					h.RateLimit = 256, 17, "100/s"
			}),
			topCase("new-order-created/miscellaneous/update-statistics", 3.7, 0.598, 3.2, 9.9, func(h *engine.HandlerInfo) {
				h.Fallback = &fallback.View{State: fallback.Out, Until: &until}
			}),
			topCase("new-order-created/miscellaneous/a-handler-with-quite-a-long-name", 0, 0, 0, 0, func(h *engine.HandlerInfo) {
				h.Switch, h.RateLimit, h.Effective = "hold", "10/m", []string{"rolled out to 25 %", "limited to 10/m"}
			}),
			topCase("a/b/c", 0.01, 0, 30000, 30000,
				func(h *engine.HandlerInfo) { h.Fallback = &fallback.View{State: fallback.Probing} }),
			topCase("a/b/d", 0, 0, 0, 0, func(h *engine.HandlerInfo) { h.Fallback = &fallback.View{State: fallback.In} }),
		},
	}
}

// TestTopDraws compares views of all sizes with testdata/cli/top.golden.
func TestTopDraws(t *testing.T) {
	t.Parallel()
	var have strings.Builder
	for _, s := range []screen{{}, {width: 80}, {width: 120, height: 6}, {width: 40}, {width: 80, color: true}} {
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
	file := filepath.Join("..", "..", "testdata", "cli", name)
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

// TestTopCommand compares what the command prints with testdata/cli/top_once.golden.
func TestTopCommand(t *testing.T) {
	t.Parallel()
	o, other := operate(t, switched), operate(t, switched)
	masked := regexp.MustCompile(`\d\d:\d\d:\d\d|http://127\.0\.0\.1:\d+|"last_success": "[^"]*"|"latency_p\d\d_ms": [\d.]+|"calls_per_second": [\d.]+|until [\d-]+T[\d:]+Z| +[\d.]+ +100% +[\d.]+ms +[\d.]+ms`)
	o.command(exitFine, "", "switch", "off", "work/last/tell", "--forever", "--reason", "incident")
	o.command(exitFine, "", "limit", "work/last/log", "10/s")
	var have strings.Builder
	for _, line := range []string{
		"top --once",
		"top work/last --once --sort path",
		"top work/last/tell --once --format json",
		"top --once --node " + other.server,
		"top work/lats --once",
		"top --once --sort size",
		"top --every 1ms",
		"top --once --node http://127.0.0.1:1",
	} {
		var out bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", o.server), streams{strings.NewReader(""), &out, &out})
		fmt.Fprintf(&have, "$ procaas %s\n%s", line, out.String())
		if code != exitFine {
			fmt.Fprintf(&have, "[exit code %d]\n", code)
		}
		have.WriteString("\n")
	}
	goldenText(t, "top_once.golden", masked.ReplaceAllString(strings.ReplaceAll(have.String(), o.dir, "DIR"), "…"))
}

// A view follows the other until the command is broken off.
func TestTopGoesOn(t *testing.T) {
	t.Parallel()
	o := operate(t, switched)
	for _, format := range []string{"text", "json"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			defer w.Close()
			ended <- Main(ctx, []string{"top", "--every", "100ms", "--format", format, "--server", o.server}, streams{strings.NewReader(""), w, w})
		}()
		views, buf, text := 0, make([]byte, 4096), ""
		for views < 3 {
			n, err := r.Read(buf)
			if err != nil {
				t.Fatalf("want views that go on, have %v after %s", err, text)
			}
			text += string(buf[:n])
			views = strings.Count(text, "work/first/look")
		}
		cancel()
		go func() { // so that nothing blocks
			for {
				if _, err := r.Read(buf); err != nil {
					return
				}
			}
		}()
		if code := <-ended; code != exitFine {
			t.Errorf("want it to end well when it is broken off, have exit code %d", code)
		}
		if first, _, _ := strings.Cut(text, "\n"); format == "json" && !json.Valid([]byte(first)) {
			t.Errorf("want a line of JSON for each view, have %s", first)
		}
	}
}

func TestTopAddsWhatOtherNodesHaveSeen(t *testing.T) {
	t.Parallel()
	failed := time.Now()
	v := topView{handlers: []engine.HandlerInfo{topCase("a/b/c", 10, 1, 5, 50), topCase("a/b/d", 0, 0, 0, 0)}}
	v.add([]engine.HandlerInfo{
		topCase("a/b/c", 30, 0.5, 4, 80, func(h *engine.HandlerInfo) { h.InFlight, h.LastFailure, h.LastError = 2, &failed, "no luck" }),
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
