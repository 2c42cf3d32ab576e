package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

// TestTopCommand compares what the command prints with testdata/cli/top_once.golden.
func TestTopCommand(t *testing.T) {
	t.Parallel()
	o, other := operateNode(t, switched), operateNode(t, switched)
	masked := regexp.MustCompile(`memory: [^\n]*|"node": \d+|"limit": \d+|"budget": \d+|"used": \d+|\d\d:\d\d:\d\d|http://127\.0\.0\.1:\d+|"last_success": "[^"]*"|"latency_p\d\d_ms": [\d.]+|"calls_per_second": [\d.]+|"counted": [^,]+|until [\d-]+T[\d:]+Z| +[\d.]+ +100% +[\d.]+ms +[\d.]+ms`)
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

// Without a terminal, the table is printed once, since a file or a filter needs an end.
// Documents of JSON follow each other until the command is interrupted.
func TestTopGoesOnForPrograms(t *testing.T) {
	t.Parallel()
	o := operateNode(t, switched)
	o.command(cli.ExitFine, `work/first/look`, "top", "--every", "100ms")

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		defer w.Close()
		ended <- Main(ctx, []string{"top", "--every", "100ms", "--format", "json", "--server", o.server},
			cli.Streams{In: strings.NewReader(""), Out: w, Err: w})
	}()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for view := range 3 {
		if !lines.Scan() || !json.Valid(lines.Bytes()) || !strings.Contains(lines.Text(), "work/first/look") {
			t.Fatalf("view %d: want a line of JSON, have %q and %v", view+1, lines.Text(), lines.Err())
		}
	}
	cancel()
	go func() { // so that nothing blocks
		for lines.Scan() {
		}
	}()
	if code := <-ended; code != cli.ExitFine {
		t.Errorf("want it to end well when it is interrupted, have exit code %d", code)
	}
}
