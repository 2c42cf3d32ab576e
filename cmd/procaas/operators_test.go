package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/enginetest/watched"
)

// TestOperatorsCommandsUnderLoad runs each command that a page tells operators to use beside a live
// node, while events come in. The history checker then looks at what came of the events. A command
// that needs no stop of a node refuses no event either.
func TestOperatorsCommandsUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "store.db")
		o := newOperators(t, "sqlite:"+file, 1)
		o.env = append(o.env, "FILE="+file)
		files := watched.Closes(t, filepath.Dir(file))
		o.run(operatorCommands)
		if closed := files(file, file+"-wal", file+"-shm"); len(closed) > 0 {
			t.Errorf("the node has closed %q, which drops its locks", closed)
		}
		o.run(operatorCommandsSQLite)
		o.replaceNodes(syscall.SIGTERM)
		o.replaceNodes(syscall.SIGKILL)
		o.end()
		o.restore(operatorCommandsStopped["sqlite"])
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := enginetest.OwnPostgres(t)
		o := newOperators(t, db.URL, 2)
		o.env = append(o.env, "PATH="+db.Binaries()+":"+os.Getenv("PATH"))
		o.run(operatorCommands)
		o.run(operatorCommandsPostgres)
		o.replaceNodes(syscall.SIGTERM)
		o.end()
		for _, v := range o.nodes {
			v.store = strings.Replace(v.store, "/postgres?", "/restored?", 1)
		}
		if out, err := o.shell("psql STORE -c 'create database restored'"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		o.env = append(o.env, "STORE="+o.nodes[0].store)
		o.restore(operatorCommandsStopped["postgres"])
	})
}

// operators are people at a shell, beside nodes under load.
type operators struct {
	t     *testing.T
	dir   string
	env   []string
	world *world
	nodes []*victim
	load  *sender
	stop  context.CancelFunc // ends the load after the last events of its keys
	ended sync.WaitGroup

	mu      sync.Mutex // guards the following
	watched bool       // a command runs that must not make a node refuse events
	refused error      // of the last event that was refused nevertheless
}

// newOperators starts nodes on an empty store, and senders.
func newOperators(t *testing.T, store string, nodes int) *operators {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("the load has the seed %d", seed)
	o := &operators{t: t, dir: t.TempDir(), world: newWorld(t, seed)}
	flows, token, key := filepath.Join(o.dir, "flows"), crand.Text(), filepath.Join(o.dir, "admin")
	write(t, key, token)
	for _, from := range []string{"../../testdata/torture/flow.yaml", "../../testdata/operators/aside.yaml"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(flows, filepath.Base(from)), string(text))
	}
	for i := range nodes {
		v := &victim{
			t: t, number: i + 1, files: flows, world: o.world.url, store: store, listen: freeAddress(t), lease: 10 * time.Second,
			drain: 20 * time.Second, flags: []string{"--admin-token-file", key, "--record", "20%"}, faults: map[string]int{},
		}
		v.client = client.New("http://"+v.listen, token)
		var err error
		if v.log, err = os.Create(filepath.Join(t.ArtifactDir(), fmt.Sprintf("node-%d.log", v.number))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			v.end(syscall.SIGKILL)
			_ = v.log.Close()
		})
		v.start(t.Context())
		o.nodes = append(o.nodes, v)
	}
	o.env = append(os.Environ(), "NO_COLOR=1", "PROCAAS_SERVER=http://"+o.nodes[0].listen, "PROCAAS_TOKEN="+token, "FLOWS="+flows,
		"STORE="+store, "COPY="+filepath.Join(o.dir, "copy"))
	// The commands are what this test is about. Each needs some events beside it, and not all of the processors.
	o.load = &sender{t: t, nodes: o.nodes, again: o.sentAgain, pause: 200 * time.Millisecond}
	loaded, stop := context.WithCancel(t.Context())
	o.stop = stop
	for i := range 2 {
		o.ended.Go(func() { o.load.send(loaded, t.Context(), i, rand.New(rand.NewPCG(seed, uint64(i)+100))) })
	}
	return o
}

// sentAgain notes that a node did not take an event while a command ran. On a busy machine, a node
// may refuse events for a moment, or answer late.
func (o *operators) sentAgain(err error) {
	if p, ok := errors.AsType[*problem.Problem](err); ok && p.Code == problem.Overloaded || os.IsTimeout(err) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched {
		o.refused = err
	}
}

func (o *operators) accepted() int {
	o.load.mu.Lock()
	defer o.load.mu.Unlock()
	return len(o.load.sent)
}

func (o *operators) watch(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched = on
}

// refusal returns why a node did not take an event while the operators watched; nil if all did.
func (o *operators) refusal() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

// operatorVariable finds the variables of a command.
var operatorVariable = regexp.MustCompile(`\b(FILE|COPY|STORE|FLOWS)\b`)

// run runs commands one after the other. After each, the nodes accept events.
func (o *operators) run(commands []string) {
	o.t.Helper()
	o.watch(true)
	for _, c := range commands {
		before, began := o.accepted(), time.Now()
		if out, err := o.shell(c); err != nil {
			o.t.Errorf("%v: %s\n%s", err, c, out)
		}
		patience.Until(o.t, "events to be accepted after "+c, func() bool { return o.accepted() > before || o.refusal() != nil })
		if err := o.refusal(); err != nil {
			o.t.Fatalf("an event was not accepted beside %s: %v", c, err)
		}
		o.t.Logf("%s, %d events: %s", time.Since(began).Round(time.Millisecond), o.accepted()-before, c)
	}
	o.watch(false)
}

// shell runs one command as a page has it. Its capital words are variables.
func (o *operators) shell(command string) (string, error) {
	ctx, cancel := patience.Context(o.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", operatorVariable.ReplaceAllString(command, "$$$1"))
	cmd.Dir, cmd.Env = o.dir, o.env
	if node := o.nodes[0].process; node != nil {
		cmd.Env = append(slices.Clip(o.env), fmt.Sprint("MAINPID=", node.Process.Pid))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// replaceNodes ends one node after the other, and starts it again.
func (o *operators) replaceNodes(how syscall.Signal) {
	for _, v := range o.nodes {
		v.end(how)
		before := o.accepted()
		v.start(o.t.Context())
		patience.Until(o.t, "events to be accepted by the new process", func() bool { return o.accepted() > before })
	}
}

// end ends the load, and checks its history.
func (o *operators) end() {
	o.t.Helper()
	o.stop()
	o.world.calmDown()
	o.ended.Wait()
	h := &history{sent: o.load.sent}
	for _, r := range settledRuns(o.t, o.nodes[0].client) {
		if r.pipeline != "aside" && r.pipeline != "broken" {
			h.runs = append(h.runs, r)
		}
	}
	for _, v := range o.nodes {
		v.end(syscall.SIGTERM)
		if v.faults["ends without goodbye"] > 1 {
			o.t.Errorf("node %d does not end well; its log ends with\n%s", v.number, lastOf(v.log.Name()))
		}
		h.lapses = append(h.lapses, v.lapses...)
	}
	h.calls = o.world.heard()
	o.t.Logf("%d events, %d calls, %d lapses", len(h.sent), len(h.calls), len(h.lapses))
	failWith(o.t, h.violations())
}

// restore puts back the backup that a command made under load, and sends all events again, as the
// page says. Each event then has a run that ends well, and its calls have the keys that they had.
func (o *operators) restore(command string) {
	o.t.Helper()
	if out, err := o.shell(command); err != nil {
		o.t.Fatalf("%v: %s\n%s", err, command, out)
	}
	v := o.nodes[0]
	v.start(o.t.Context())
	runs := map[string]sentEvent{}
	for _, e := range o.load.sent {
		if e.late {
			continue
		}
		ev := wire.Event{
			Type: e.kind, ID: fmt.Sprint(e.key, "-", e.n), Source: "torture", Key: e.key, Payload: map[string]any{"n": e.n},
		}
		runs[o.load.insist(o.t.Context(), rand.New(rand.NewPCG(1, 1)), ev, false)] = e
	}
	if len(runs) == 0 {
		o.t.Fatal("no event was sent again: the test shows nothing")
	}
	for _, r := range settledRuns(o.t, v.client) {
		if e, is := runs[r.id]; is && r.status != "succeeded" {
			o.t.Errorf("after the restore, run %s of %+v is %s", r.id, e, r.status)
		}
		delete(runs, r.id)
	}
	for id, e := range runs {
		o.t.Errorf("after the restore, run %s of %+v is lost", id, e)
	}
	tokens := map[string]string{}
	for _, c := range o.world.heard() {
		if c.pipeline() == "note" {
			continue // events that runs emit have ids of their runs
		}
		handler := fmt.Sprint(c.key, " ", c.n, " ", c.path)
		if first, ok := tokens[handler]; ok && first != c.token {
			o.t.Errorf("%s has called with the keys %s and %s", handler, first, c.token)
		}
		tokens[handler] = c.token
	}
	v.end(syscall.SIGTERM)
}
