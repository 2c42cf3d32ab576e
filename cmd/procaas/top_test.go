package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"procaas/cmd/procaas/internal/cli"
)

// TestTopCommand compares what the command prints with testdata/cli/top_once.golden.
func TestTopCommand(t *testing.T) {
	t.Parallel()
	o, other := operateNode(t, switched), operateNode(t, switched)
	masked := regexp.MustCompile(`\d\d:\d\d:\d\d|http://127\.0\.0\.1:\d+|"last_success": "[^"]*"|"latency_p\d\d_ms": [\d.]+|"calls_per_second": [\d.]+|"counted": [^,]+|until [\d-]+T[\d:]+Z| +[\d.]+ +100% +[\d.]+ms +[\d.]+ms`)
	o.command(cli.ExitFine, "", "switch", "off", "work/last/tell", "--forever", "--reason", "incident")
	o.command(cli.ExitFine, "", "limit", "work/last/log", "10/s")
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
		code := Main(t.Context(), append(strings.Fields(line), "--server", o.server), cli.Streams{
			In: strings.NewReader(""), Out: &out,
			Err: &out,
		})
		fmt.Fprintf(&have, "$ procaas %s\n%s", line, out.String())
		if code != cli.ExitFine {
			fmt.Fprintf(&have, "[exit code %d]\n", code)
		}
		have.WriteString("\n")
	}
	golden(t, "top_once.golden", masked.ReplaceAllString(strings.ReplaceAll(have.String(), o.dir, "DIR"), "…"))
}

// A view follows the other until the command is broken off.
func TestTopGoesOn(t *testing.T) {
	t.Parallel()
	o := operateNode(t, switched)
	for _, format := range []string{"text", "json"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			defer w.Close()
			ended <- Main(ctx, []string{"top", "--every", "100ms", "--format", format, "--server", o.server},
				cli.Streams{In: strings.NewReader(""), Out: w, Err: w})
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
		if code := <-ended; code != cli.ExitFine {
			t.Errorf("want it to end well when it is broken off, have exit code %d", code)
		}
		if first, _, _ := strings.Cut(text, "\n"); format == "json" && !json.Valid([]byte(first)) {
			t.Errorf("want a line of JSON for each view, have %s", first)
		}
	}
}
