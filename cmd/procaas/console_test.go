package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
)

// consoleDir has the browser test, and what it needs.
const consoleDir = "../../testdata/console"

var everyConsole = flag.Bool("every-console", false, "let a browser look at the console of nodes on PostgreSQL, too")

// TestConsole lets a browser look at the console of real nodes, with -every-console on both stores: the demo with its incident, and a
// shop that breaks on command. What the browser does is in testdata/console/console.mjs.
func TestConsole(t *testing.T) {
	t.Parallel()
	chromium := chromiumPath(t)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		browse(t, chromium, true, "sqlite:"+filepath.Join(t.TempDir(), "demo.db"), "sqlite:"+filepath.Join(t.TempDir(), "shop.db"))
	})
	if !*everyConsole { // the pages are the same
		return
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		browse(t, chromium, false, enginetest.Postgres(t), enginetest.Postgres(t))
	})
}

// chromiumPath finds the browser. Without it the test fails, for a test that is left
// out shows nothing.
func chromiumPath(t *testing.T) string {
	t.Helper()
	const install = "run: sh engine/enginetest/install.sh"
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatalf("the browser test needs Node.js; %s", install)
	}
	for _, name := range []string{"playwright-core", "axe-core"} {
		if _, err := os.Stat(filepath.Join(consoleDir, "node_modules", name)); err != nil {
			t.Fatalf("the browser test needs the package %s; %s", name, install)
		}
	}
	if path := os.Getenv("PROCAAS_TEST_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("the browser test needs Chromium; %s", install)
	return ""
}

// A shop is a service that works or not, and counts its requests.
type shop struct {
	broken   atomic.Bool
	messages atomic.Int64
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/v1/messages":
		s.messages.Add(1)
	case s.broken.Load():
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"receipt": "r-1"}`)
}

// browse runs the browser test against a demo and a shop on their stores.
func browse(t *testing.T, chromium string, whole bool, demoStore, shopStore string) {
	ctx, cancel := patience.Context(t.Context(), 8*time.Minute)
	defer cancel()
	demo, demoAddress := startProcaas(ctx, t, "", "demo", "--store", demoStore, "--listen", "127.0.0.1:0", "--rate", "5", "--incident-after",
		"1s", "--incident-for", "1h")
	defer demo.kill()

	dev, devAddress := startProcaas(ctx, t, "", "dev", filepath.Join(consoleDir, "shop.yaml"), "--ephemeral", "--stubs=false",
		"--listen", "127.0.0.1:0")
	defer dev.kill()

	var sold shop
	service := httptest.NewServer(&sold)
	defer service.Close()
	address := freeAddress(t)
	serve := func() *child {
		p, _ := startProcaas(ctx, t, address, "serve", "--store", shopStore, "--pipelines", filepath.Join(consoleDir, "shop.yaml"), "--service",
			"shop="+service.URL,
			"--listen", address, "--log-level", "error")
		return p
	}
	node := serve()
	defer func() { node.kill() }()

	shots, err := filepath.Abs(filepath.Join(consoleDir, "shots"))
	if err != nil {
		t.Fatal(err)
	}
	_, kind, _ := strings.Cut(t.Name(), "/")
	about, err := json.Marshal(map[string]any{
		"shop": "http://" + address, "demo": "http://" + demoAddress, "dev": "http://" + devAddress, "shots": shots, "whole": whole, "name": kind, "chromium": chromium,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "node", "console.mjs", string(about))
	cmd.Dir = consoleDir
	// The browser's own files. It may write there for a moment after it was closed, which
	// is no reason to fail.
	temporary, err := os.MkdirTemp("", "procaas-console-") //nolint:usetesting // t.TempDir fails when it cannot remove all
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(output)
	said.Buffer(nil, 1<<20)
	for said.Scan() {
		answer := "done"
		switch line := said.Text(); line {
		case "@break", "@mend":
			sold.broken.Store(line == "@break")
		case "@calls":
			answer = fmt.Sprint(sold.messages.Load())
		case "@stop":
			node.kill()
		case "@start":
			node = serve()
		default:
			t.Log(line)
			continue
		}
		if _, err := io.WriteString(answers, answer+"\n"); err != nil {
			t.Errorf("answer the browser test: %v", err)
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the browser test: %v; its screenshots are in testdata/console/shots", err)
	}
}

// startProcaas runs the real binary and waits until it is ready. Without an address, it
// is read from what the binary says.
func startProcaas(ctx context.Context, t *testing.T, address string, args ...string) (*child, string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "procaas", args...)
	var said lines
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &child{t: t, cmd: cmd}
	t.Cleanup(p.kill)
	for ctx.Err() == nil {
		if address == "" {
			address = said.after("Console    http://")
		} else if reply, err := http.Get("http://" + address + "/readyz"); err == nil {
			_ = reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return p, address
			}
		}
		clock.Pause(ctx, 20*time.Millisecond)
	}
	t.Fatalf("procaas %s is not ready\n%s", strings.Join(args, " "), said.after(""))
	return nil, ""
}

// lines collect what a process says.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write implements [io.Writer].
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// after returns the rest of the line after a word; empty when it has not been said.
func (l *lines) after(word string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, rest, _ := strings.Cut(l.text.String(), word)
	if word == "" {
		return rest
	}
	rest, _, whole := strings.Cut(rest, "\n")
	if !whole {
		return ""
	}
	return strings.TrimSuffix(rest, "/")
}
