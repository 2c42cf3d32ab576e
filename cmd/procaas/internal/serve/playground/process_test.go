package playground

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/engine/api/cli"
	"procaas/engine/api/ui"
)

// TestMain lets this program be the process of the playground, too. Its bounds are the real ones. Some forms make it do
// what no form should: what they name.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != name {
		os.Exit(m.Run())
	}
	if err := bound(); err != nil {
		panic(err)
	}
	var typed ui.Typed
	input := new(bytes.Buffer)
	if _, err := input.ReadFrom(os.Stdin); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(input.Bytes(), &typed); err != nil {
		panic(err)
	}
	misbehave(typed.YAML)
	if err := try(context.Background(), cli.Streams{In: input, Out: os.Stdout, Err: os.Stderr}); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// misbehave does what a form names, and returns if it names nothing.
func misbehave(what string) {
	switch what {
	case "processor":
		for {
		}
	case "memory":
		var all [][]byte
		for {
			part := make([]byte, 1<<20)
			for i := range part {
				part[i] = byte(i)
			}
			all = append(all, part)
			_ = all
		}
	case "one allocation":
		part := make([]byte, 3<<30)
		for i := range part {
			part[i] = byte(i)
		}
		fmt.Print(len(part))
		os.Exit(0)
	case "output":
		for {
			fmt.Print(strings.Repeat("<p>", 1<<16))
		}
	case "hang":
		select {}
	case "surroundings":
		open, _ := filepath.Glob("/proc/self/fd/*")
		fmt.Print(strings.Join(os.Environ(), " "), " ", len(open))
		os.Exit(0)
	case "panic":
		panic("a defect")
	}
}

func TestProcessIsBounded(t *testing.T) {
	for what, want := range map[string]string{
		"processor": "it needs more than 5 s of processor time", "memory": "it needs more than 256 MiB of memory",
		"one allocation": "it needs more than 256 MiB of memory", "output": "the result is larger than 16 MiB", "panic": "a defect",
	} {
		t.Run(what, func(t *testing.T) {
			page, err := Play(t.Context(), ui.Typed{YAML: what})
			if err == nil || !strings.Contains(err.Error(), want) || page != "" {
				t.Errorf("want %q, have %v and %d bytes", want, err, len(page))
			}
		})
	}
}

// A process may write more than is kept before anybody reads it. What it says first is why it ended.
func TestBoundedKeepsTheBeginning(t *testing.T) {
	t.Parallel()
	b := &bounded{most: 4}
	if n, err := b.Write([]byte("out of memory")); n != 4 || err == nil || b.data.String() != "out " || !b.full {
		t.Errorf("have %d, %v, %q, %v", n, err, b.data.String(), b.full)
	}
}

// The process ends with the wait for it.
func TestProcessEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := Play(ctx, ui.Typed{YAML: "hang"})
		ended <- err
	}()
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "it takes too long") {
		t.Errorf("have %v", err)
	}
}

// The node's secrets may be in its environment, and its sockets are open.
func TestProcessInheritsNothing(t *testing.T) {
	t.Setenv("PROCAAS_SECRET_TOKEN", "c4nary")
	page, err := Play(t.Context(), ui.Typed{YAML: "surroundings"})
	if err != nil || strings.Contains(string(page), "c4nary") || strings.Contains(string(page), "PATH=") {
		t.Errorf("want no variables of the node, have %s, %v", page, err)
	}
}

func TestProcessShowsWhatComesOfAForm(t *testing.T) {
	page, err := Play(t.Context(), ui.Typed{YAML: tried, Run: true, Tests: `
tests:
  - name: told the next day
    events: {type: hello, payload: {name: "<b>Ada"}}
    mocks: {user: [{status: 503}, {status: 202}]}
    expect: {status: succeeded}
`})
	for _, want := range []string{"No problems found", "The test passed, in 24 h", "hello/tell/user", `hello \u003cb\u003eAda`, "503"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("want %q on the page, have %v and\n%s", want, err, page)
		}
	}
	page, err = Play(t.Context(), ui.Typed{YAML: "pipelines: [{id: a, sett: 1}]"})
	if err != nil || !strings.Contains(string(page), "line 1") {
		t.Errorf("want a finding, have %v and\n%s", err, page)
	}
}
