package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

// An attack is work that needs more memory than a node has.
type attack struct {
	pipelines string // URL is that of a service
	events    int
	payload   string
	reply     func(path string) string // of the service
	again     bool                     // kill the node in the middle, and start another one
}

// objects is a list of small objects of about n bytes of JSON.
func objects(object string, n int) string {
	return "[" + strings.Repeat(object+",", n/(len(object)+1)-1) + object + "]"
}

// attacks are those that killed nodes, with numbers for a node of 512 MiB, and times for larger ones.
func attacks(times int) map[string]attack {
	return map[string]attack{
		"replies of small objects": {
			events: 20 * times, payload: `{}`, again: true,
			reply: func(string) string { return objects("{}", 1<<20-100) },
			pipelines: `
services: [{id: s, url: URL}]
pipelines:
  - id: p
    max-state: 4MiB
    shared-state: {n: 0}
    stages:
      - {id: a, handlers: [{id: ask, request: {service: s, path: /big, timeout: 1m}}]}
      - {id: b, handlers: [{id: count, set: {n: !$ len(sources.ask.response)}}]}
`,
		},
		"events of small objects": {
			events: 16 * times, payload: `{"list": ` + objects(`{"a":0}`, 1<<20-200) + `}`, again: true,
			reply: func(string) string { return `{}` },
			pipelines: `
services: [{id: s, url: URL}]
pipelines:
  - id: p
    stages: [{id: a, handlers: [{id: ask, request: {service: s, path: /, timeout: 1m}}]}]
`,
		},
		"runs that grow": {
			events: 12 * times, payload: `{}`, again: true,
			reply: func(path string) string {
				if path == "/text" {
					return strconv.Quote(strings.Repeat("x", 200_000))
				}
				return `{}`
			},
			pipelines: `
services: [{id: s, url: URL}]
pipelines:
  - id: p
    stages:
      - {id: a, handlers: [{id: text, request: {service: s, path: /text, timeout: 1m}}]}
      - {id: b, handlers: [{id: all, for-each: {items: !$ '1..50', max-parallel: 50}, call: {pipeline: q, with: {text: !$ sources.text.response}}}]}
  - id: q
    inputs: {text: {}}
    stages: [{id: a, handlers: [{id: ask, request: {service: s, path: /, timeout: 1m}}]}]
`,
		},
	}
}

// A node with little memory gets work that takes much more. It stays alive, within its limit, and each
// event that it has accepted gets its run, also when the node is killed in the middle.
func TestNodesStayWithinTheirMemory(t *testing.T) {
	t.Parallel()
	memory, times := "512MiB", 1
	if text := os.Getenv("PROCAAS_TEST_MEMORY"); text != "" {
		memory, times = text, 12
	}
	for name, a := range attacks(times) {
		t.Run(name, func(t *testing.T) { a.test(t, memory) })
	}
}

func (a *attack) test(t *testing.T, memory string) {
	ctx, cancel := patience.Context(t.Context(), time.Duration(a.events)*15*time.Second)
	defer cancel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, a.reply(r.URL.Path))
	}))
	t.Cleanup(service.Close)
	dir := t.TempDir()
	flows, store := filepath.Join(dir, "flows.yaml"), "sqlite:"+filepath.Join(dir, "p.db")
	if err := os.WriteFile(flows, []byte(strings.ReplaceAll(a.pipelines, "URL", service.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startMemoryNode(ctx, t, flows, store, memory)
	var all sync.WaitGroup
	for i := range a.events {
		all.Go(func() { n.submit(ctx, t, fmt.Sprintf(`{"type": "p", "id": "e%d", "payload": %s}`, i, a.payload)) })
	}
	all.Wait()
	if a.again {
		n.until(ctx, t, 1)
		n.end(t)
		n = startMemoryNode(ctx, t, flows, store, memory)
	}
	n.until(ctx, t, a.events)
	n.end(t)
}

// A memoryNode is a process with little memory.
type memoryNode struct {
	cmd    *exec.Cmd
	url    string
	memory string
	log    *bytes.Buffer
}

func startMemoryNode(ctx context.Context, t *testing.T, flows, store, memory string) *memoryNode {
	t.Helper()
	n := &memoryNode{url: "http://" + freeAddress(t), memory: memory, log: &bytes.Buffer{}}
	n.cmd = exec.CommandContext(ctx, "procaas", "serve", "-p", flows, "--store", store, "--listen", strings.TrimPrefix(n.url, "http://"),
		"--memory", memory)
	n.cmd.Stderr = n.log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.cmd.ProcessState == nil {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%.4000s", n.log)
		}
	})
	for {
		if reply, err := http.Get(n.url + "/readyz"); err == nil {
			reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return n
			}
		}
		if !clock.Pause(ctx, 10*time.Millisecond) {
			t.Fatalf("the node is not ready: %.4000s", n.log)
		}
	}
}

// submit submits an event until the node accepts it. A node without memory says when to come again.
func (n *memoryNode) submit(ctx context.Context, t *testing.T, event string) {
	for {
		reply, err := http.Post(n.url+"/v1/events", "application/json", strings.NewReader(event))
		if err != nil {
			t.Errorf("want the node alive, have %v", err)
			return
		}
		body, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		switch reply.StatusCode {
		case http.StatusAccepted, http.StatusOK:
			return
		case http.StatusServiceUnavailable:
			if reply.Header.Get("Retry-After") != "" && clock.Pause(ctx, 100*time.Millisecond) {
				continue
			}
		}
		t.Errorf("want the event accepted, have %d %s", reply.StatusCode, body)
		return
	}
}

// until waits until so many runs have succeeded.
func (n *memoryNode) until(ctx context.Context, t *testing.T, runs int) {
	t.Helper()
	at := client.New(n.url, "")
	for {
		succeeded, filter := 0, store.RunFilter{Pipeline: "p"}
		for {
			page, err := at.Runs(ctx, filter) // a node with little memory has small pages
			if err != nil {
				if n.ended() || ctx.Err() != nil {
					t.Fatalf("want the node alive, have %v", err)
				}
				break // a busy node may be slow
			}
			for _, r := range page.Items {
				switch r.Status {
				case model.Failed:
					t.Fatalf("want no run failed, have %s: %s", r.ID, r.Error)
				case model.Succeeded:
					succeeded++
				}
			}
			if page.Next == nil {
				break
			}
			filter.Cursor = *page.Next
		}
		if succeeded >= runs {
			return
		}
		if !clock.Pause(ctx, 100*time.Millisecond) {
			t.Fatalf("want %d runs succeeded, have %d", runs, succeeded)
		}
	}
}

// ended reports whether the process has ended.
func (n *memoryNode) ended() bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	return err != nil || strings.Contains(string(state), ") Z ")
}

// end kills the node, and checks how much memory it has taken at most.
func (n *memoryNode) end(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("want the node alive, have %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	peak, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", n.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	mib, err := strconv.Atoi(strings.TrimSuffix(n.memory, "MiB"))
	if err != nil {
		t.Fatal(err)
	}
	most := mib*12/10 + int(program.Size()>>20)
	t.Logf("the node has taken %d MiB at most, of %d", peak>>10, mib)
	if peak>>10 > most {
		t.Errorf("want at most %d MiB taken, have %d", most, peak>>10)
	}
	if err := n.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.cmd.Wait()
}
