package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/demo"
	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/cmd/procaas/internal/source"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/enginetest/ports"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
	"procaas/engine/stub"
)

const taxiDir = "../../pipelines/taxi"

// TestOrdersSurviveKill9 kills a serving node twice while 500 orders go through
// the taxi flow, and starts it again on the same store. Every accepted order
// completes, and no handler whose outcome was in the store at a crash is called
// again: the stub services remember every call.
func TestOrdersSurviveKill9(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		surviveKill9(t, "sqlite:"+filepath.Join(t.TempDir(), "crash.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		surviveKill9(t, enginetest.MigratedPostgres(t))
	})
}

func surviveKill9(t *testing.T, store string) {
	const orders, kills = 500, 2
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	stubs := taxiStubs(ctx, t)
	c := &crashing{t: t, store: store, listen: freeAddress(t), stubs: stubs}
	c.client = client.New("http://"+c.listen, "")

	server := c.start(ctx)
	receipts := c.submit(ctx, orders)
	for kill := 1; kill <= kills; kill++ {
		c.waitForCalls(ctx, kill*orders)
		server.kill()
		done := c.checkpointed(ctx)
		if len(done) == 0 {
			t.Errorf("kill %d: no handler was checkpointed before it; the test shows nothing", kill)
		}
		before := len(stubs.Record().Calls)
		server = c.start(ctx)
		c.waitForCalls(ctx, before+orders/10)
		c.checkNotRepeated(done, before)
	}
	c.checkAllSucceeded(ctx, receipts())
	server.terminate()
}

// A crashing server and what surrounds it.
type crashing struct {
	t      *testing.T
	store  string
	listen string
	stubs  *stub.Server // nil for none
	client *client.Client

	pipelines string   // the taxi flow when empty
	cells     []string // more databases of the inbox, as flags name them
	name      string   // of the node; its own choice when empty
	flags     []string // more of them
	logs      *os.File // gets the lines of processes while they serve; may be nil
}

// newCrashing returns a node that is not started yet. Its pipelines call a service, at the place of URL in their text.
func newCrashing(t *testing.T, store, pipelines, url string, flags ...string) *crashing {
	t.Helper()
	c := &crashing{t: t, store: store, listen: freeAddress(t), pipelines: t.TempDir(), flags: flags}
	if err := os.WriteFile(filepath.Join(c.pipelines, "p.yaml"), []byte(strings.ReplaceAll(pipelines, "URL", url)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.client = client.New("http://"+c.listen, "")
	return c
}

// submitEach submits events of a type, whose ids are their numbers, and returns their runs.
func (c *crashing) submitEach(ctx context.Context, eventType string, events int) (runs []string) {
	c.t.Helper()
	for n := range events {
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: eventType, ID: strconv.Itoa(n), Source: "test"})
		if err != nil {
			c.t.Fatal(err)
		}
		runs = append(runs, receipt.Run)
	}
	return runs
}

func taxiStubs(ctx context.Context, t *testing.T) *stub.Server {
	t.Helper()
	files, err := source.Files([]string{taxiDir}, nil, source.IsStub)
	if err != nil {
		t.Fatal(err)
	}
	server, err := source.Stubs(ctx, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

// freeAddress returns an address for a process that ends and comes back at the same place. Nobody else gets it until the test ends.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, release, err := ports.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return fmt.Sprint("127.0.0.1:", port)
}

// lastLines is how much of the log of a child is shown if its end is not as wanted.
const lastLines = 20

// A child is a procaas process of the test.
type child struct {
	t   *testing.T
	cmd *exec.Cmd

	reading sync.WaitGroup // of its log
	said    []string       // its last lines, to be read after reading
}

// steadyLease is a lease that no node loses while a busy machine lets it stand still. Others take over from a killed process
// without waiting for its end, since they see that it is dead.
const steadyLease = "1m"

// start starts procaas serve and waits until it serves. Flags of c win.
func (c *crashing) start(ctx context.Context) *child {
	c.t.Helper()
	args := []string{
		"serve", "--store", c.store, "--pipelines", cmp.Or(c.pipelines, taxiDir), "--listen", c.listen, "--log-format", "json",
		"--lease", steadyLease,
	}
	args = append(args, c.flags...)
	for _, cell := range c.cells {
		args = append(args, "--cell", cell)
	}
	if c.name != "" {
		args = append(args, "--name", c.name)
	}
	if c.stubs != nil {
		for id, url := range c.stubs.URLs() {
			args = append(args, "--service", id+"="+url)
		}
	}
	cmd := exec.CommandContext(ctx, "procaas", args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	p := &child{t: c.t, cmd: cmd}
	c.t.Cleanup(p.kill)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct{ Msg string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			p.reading.Go(func() {
				for lines.Scan() { // the pipe must not fill up
					if c.logs != nil {
						fmt.Fprintln(c.logs, lines.Text())
					}
					p.said = append(p.said[max(0, len(p.said)-lastLines+1):], lines.Text())
				}
			})
			return p
		}
		c.t.Logf("procaas serve: %s", lines.Text())
	}
	c.t.Fatal("procaas serve ended before it served")
	return nil
}

// kill ends the process as a power cut would, and waits for its end.
func (p *child) kill() { p.end(syscall.SIGKILL) }

// terminate lets the process drain.
func (p *child) terminate() {
	p.t.Helper()
	if err := p.end(syscall.SIGTERM); err != nil {
		p.t.Errorf("procaas serve after SIGTERM: %v\n%s", err, strings.Join(p.said, "\n"))
	}
}

func (p *child) end(sig syscall.Signal) error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.cmd.Process.Signal(sig) // it may have ended by itself; Wait tells
	p.reading.Wait()              // Wait closes the pipe
	return p.cmd.Wait()
}

// submit sends orders from several clients that try again, with the same id,
// until they have an answer. The function that it returns waits for the receipts.
func (c *crashing) submit(ctx context.Context, orders int) func() map[string]string {
	var mu sync.Mutex
	var all sync.WaitGroup
	runs := map[string]string{} // by event id
	next := make(chan int)
	for range 16 {
		all.Go(func() {
			for n := range next {
				id, run := c.submitOne(ctx, n)
				mu.Lock()
				runs[id] = run
				mu.Unlock()
			}
		})
	}
	all.Go(func() {
		defer close(next)
		for n := 1; n <= orders; n++ {
			next <- n
		}
	})
	return func() map[string]string {
		all.Wait()
		return runs
	}
}

func (c *crashing) submitOne(ctx context.Context, n int) (id, run string) {
	order := demo.NewOrder(n)
	for ctx.Err() == nil {
		receipt, err := c.client.SubmitEvent(ctx, order)
		if err == nil {
			return receipt.Event, receipt.Run
		}
		clock.Pause(ctx, 20*time.Millisecond)
	}
	return fmt.Sprint(n), ""
}

// waitForCalls waits until the stub services have had so many calls.
func (c *crashing) waitForCalls(ctx context.Context, calls int) {
	c.t.Helper()
	for c.stubs.Record().Total < calls {
		if !clock.Pause(ctx, 5*time.Millisecond) {
			c.t.Fatalf("want %d calls, have %d when the time was up", calls, c.stubs.Record().Total)
		}
	}
}

type call struct{ run, path string }

// checkpointed reads from the store, with no server at work, which handlers
// have succeeded.
func (c *crashing) checkpointed(ctx context.Context) map[call]bool {
	c.t.Helper()
	db, err := stores.Options{DSN: c.store}.Open(ctx, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	done := map[call]bool{}
	for filter := (store.RunFilter{Limit: 1000}); ; {
		found, next, err := db.Runs.List(ctx, filter)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, r := range found {
			for _, h := range records.View(r).Handlers {
				if h.Outcome == model.OutcomeSucceeded {
					done[call{r.ID, h.Path}] = true
				}
			}
		}
		if next == "" {
			return done
		}
		filter.Cursor = next
	}
}

// checkNotRepeated looks for calls after the first so many that should not have
// been made.
func (c *crashing) checkNotRepeated(done map[call]bool, before int) {
	c.t.Helper()
	for _, made := range c.stubs.Record().Calls[before:] {
		if done[call{made.Run, made.Handler}] {
			c.t.Errorf("run %s: %s was called again after its outcome was checkpointed", made.Run, made.Handler)
		}
	}
}

func (c *crashing) checkAllSucceeded(ctx context.Context, receipts map[string]string) {
	c.t.Helper()
	for id, run := range receipts {
		for {
			view, err := c.client.Run(ctx, run)
			if err != nil {
				c.t.Fatalf("order %s: run %s: %v", id, run, err)
			}
			if view.Status == model.Succeeded {
				break
			}
			if view.Status.Ended() {
				c.t.Errorf("order %s: run %s is %s: %s%s", id, run, view.Status, view.Error, view.Reason)
				break
			}
			if !clock.Pause(ctx, 10*time.Millisecond) {
				c.t.Fatalf("order %s: run %s is still %s when the time was up", id, run, view.Status)
			}
		}
	}
	if len(receipts) != 500 {
		c.t.Errorf("want 500 receipts, have %d", len(receipts))
	}
}
