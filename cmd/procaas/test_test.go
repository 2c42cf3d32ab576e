package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

const watchedFlow = `pipelines:
  - id: greet
    shared-state: {greeting: null}
    stages:
      - {id: a, handlers: [{id: hello, set: {greeting: hello}}]}
`

const watchedTest = `pipelines: ../flows
tests:
  - name: a greeting
    events: {type: greet}
    expect: {shared-state: {greeting: hello}}
`

func TestTestWatchesPipelinesAndTests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("flows/flow.yaml", watchedFlow)
	write("tests/flow.test.yaml", watchedTest)
	var out, log lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- Main(ctx, []string{"test", "--watch", dir}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &log})
	}()
	// The files are watched after the first run, so changes are made until one is
	// seen; not too often, since they must settle.
	again := func(name, text string) func() {
		n := 0
		return func() {
			if n%100 == 0 {
				write(name, text)
			}
			n++
		}
	}
	eventually(t, "the tests pass", func() bool { return strings.Contains(out.text(), "1 test passed") })
	change := again("flows/flow.yaml", strings.Replace(watchedFlow, "greeting: hello", "greeting: good bye", 1))
	eventually(t, "they fail for the pipelines have changed", func() bool {
		change()
		return strings.Contains(out.text(), `have  "good bye"`)
	})
	spoil := again("tests/flow.test.yaml", "tests: 7\n")
	eventually(t, "a broken file is told", func() bool {
		spoil()
		return strings.Contains(log.text(), `field "tests": want a list, have 7`)
	})
	stop()
	if code := <-ended; code != cli.ExitFine {
		t.Errorf("want exit code %d at the end, have %d", cli.ExitFine, code)
	}
}
