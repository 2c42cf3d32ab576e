package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/queue"
	"procaas/handlers/queue/taskrun"
)

// handLease is for how long the workers of the torture test hold tasks. It is short, so
// that much happens.
const handLease = 2 * time.Second

// handTypes are the types of tasks that the workers do. They take those of the other
// types by themselves.
var handTypes = []string{"plain", "keyed", "fails", "crash", "keep", "merge", "replace", "rerun"}

// A hand is a worker process that is killed, paused and cut off, and started again as
// often as it ends.
type hand struct {
	t      *testing.T
	number int
	kind   string // compiled: a program with the Go package; outside: one that only knows HTTP
	dsn    string // through the proxy
	nodes  string // addresses, by commas
	world  string
	proxy  *enginetest.Proxy // between it and the store; nil for an outside one
	pauses *rand.Rand        // of supervise
	harm   *rand.Rand        // of torture, which goes on beside it
	log    *os.File

	mu      sync.Mutex // guards the following
	process *os.Process
	starts  int
	faults  map[string]int
}

func newHand(t *testing.T, kind string, number int, seed uint64, server, dsn, nodes, world string) *hand {
	t.Helper()
	h := &hand{
		t: t, number: number, kind: kind, nodes: nodes, world: world, pauses: rand.New(rand.NewPCG(seed, uint64(number)+500)),
		harm: rand.New(rand.NewPCG(seed, uint64(number)+700)), faults: map[string]int{},
	}
	var err error
	if kind == "compiled" {
		if h.proxy, err = enginetest.StartProxy(server); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.proxy.Close() })
		if h.dsn, err = h.proxy.Through(dsn); err != nil {
			t.Fatal(err)
		}
	}
	if h.log, err = os.Create(filepath.Join(t.ArtifactDir(), fmt.Sprintf("hand-%d.log", number))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.log.Close() })
	return h
}

// supervise starts the process whenever it has ended, until ctx ends, and then ends it.
func (h *hand) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		h.mu.Lock()
		h.starts++
		cmd := exec.Command("torture-hand", h.kind, fmt.Sprint(h.number*10_000+h.starts), h.world, h.nodes, h.dsn)
		cmd.Stderr = h.log
		in, err := cmd.StdinPipe() // it ends with this test in any case
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			h.mu.Unlock()
			h.t.Errorf("hand %d: %v", h.number, err)
			return
		}
		h.process = cmd.Process
		h.mu.Unlock()
		ended := make(chan struct{})
		go func() { // ends with the process
			defer close(ended)
			_ = cmd.Wait() // however it ends
		}()
		select {
		case <-ended:
		case <-ctx.Done():
			h.send(syscall.SIGTERM)
			select {
			case <-ended:
			case <-patience.After(h.t, time.Minute):
				h.t.Errorf("hand %d does not end; its log ends with\n%s", h.number, lastOf(h.log.Name()))
				h.send(syscall.SIGKILL)
				<-ended
			}
		}
		_ = in.Close()
		clock.Pause(ctx, between(h.pauses, 10*time.Millisecond, 300*time.Millisecond))
	}
}

func (h *hand) send(sig syscall.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process != nil {
		_ = h.process.Signal(sig) // it may have ended by itself
	}
}

// torture does to the process what may happen to one, until ctx ends.
func (h *hand) torture(ctx context.Context) {
	random := h.harm
	for clock.Pause(ctx, between(random, 300*time.Millisecond, 2500*time.Millisecond)) {
		what := random.IntN(9)
		if h.proxy == nil {
			what %= 5
		} else {
			h.proxy.LoseCommits(0.03, random.Uint64())
		}
		long := between(random, handLease/4, 2*handLease)
		switch what {
		case 0, 1:
			h.note("kill -9")
			h.send(syscall.SIGKILL)
		case 2, 3:
			h.note("SIGSTOP")
			h.send(syscall.SIGSTOP)
			clock.Pause(ctx, long)
			h.send(syscall.SIGCONT)
		case 4:
			h.note("SIGTERM")
			h.send(syscall.SIGTERM)
		case 5:
			h.note("held bytes")
			h.proxy.Hold(long)
			clock.Pause(ctx, long)
		case 6:
			h.note("cut")
			h.proxy.Cut()
		case 7:
			h.note("refused connections")
			h.proxy.Refuse(long)
			clock.Pause(ctx, long)
		case 8:
			h.note("late bytes")
			h.proxy.Delay(between(random, 5*time.Millisecond, 60*time.Millisecond), long)
		}
	}
	if h.proxy != nil {
		h.proxy.LoseCommits(0, 0)
	}
}

func (h *hand) note(fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[fault]++
}

// tortureHand is the program of a hand.
func tortureHand() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, orphaned := context.WithCancel(ctx)
	go func() { // for as long as the process lives
		_, _ = io.Copy(io.Discard, os.Stdin)
		orphaned()
	}()
	w := &handWork{
		world: os.Args[3] + "/" + os.Args[2], name: "hand-" + os.Args[2], nodes: strings.Split(os.Args[4], ","),
		log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	var err error
	if os.Args[1] == "compiled" {
		err = w.compiled(ctx, os.Args[5])
	} else {
		err = w.outside(ctx)
	}
	if err != nil {
		w.log.Error("ends", "error", err)
		os.Exit(1)
	}
}

// A handWork does tasks as the witness says, and tells it.
type handWork struct {
	world string
	name  string
	nodes []string
	log   *slog.Logger
}

// crashes is the exit code of a process that a task brings down.
const crashes = 7

// tell posts a report to the witness, which is always there.
func (w *handWork) tell(what string, body, into any) {
	data, err := json.Marshal(body)
	if err == nil {
		var reply *http.Response
		if reply, err = http.Post(w.world+"/"+what, "application/json", bytes.NewReader(data)); err == nil {
			err = json.NewDecoder(reply.Body).Decode(into)
			_ = reply.Body.Close()
		}
	}
	if err != nil {
		w.log.Error("the witness is away", "error", err)
		os.Exit(1)
	}
}

// do does one attempt; the process may end in it. The error is that of the attempt.
func (w *handWork) do(ctx context.Context, b begunTask) (place int, fate string) {
	if b.Payload.Pad != "" {
		sum := sha256.Sum256([]byte(b.Payload.Pad))
		b.Payload.Pad = hex.EncodeToString(sum[:])
	}
	var order fateOf
	w.tell("begin", b, &order)
	if order.Fate == "crash" {
		os.Exit(crashes)
	}
	clock.Pause(ctx, time.Duration(order.Millis)*time.Millisecond)
	w.tell("end", endedTask{Place: order.Place}, &struct{}{})
	return order.Place, order.Fate
}

// compiled works with the Go package on the store.
func (w *handWork) compiled(ctx context.Context, dsn string) error {
	var store *queue.Store
	for store == nil {
		var err error
		opening, cancel := context.WithTimeout(ctx, 10*time.Second)
		store, err = queue.Open(opening, dsn, queue.Options{MaxConns: 4, Log: w.log})
		cancel()
		if err != nil && !clock.Pause(ctx, 50*time.Millisecond) {
			return nil
		}
	}
	defer store.Close()
	worker := queue.NewWorker(store, queue.WorkerOptions{
		Name: w.name, Lease: handLease, Poll: 200 * time.Millisecond, Prefetch: 20, Grace: time.Second, CareElsewhere: true, Log: w.log,
	})
	again := taskrun.TaskPolicy{MinDelay: 10 * time.Millisecond, MaxDelay: 300 * time.Millisecond, Factor: 2}
	for _, name := range handTypes {
		kind := queue.Kind[taskBody]{Name: name, Running: 4, Retry: &again}
		switch name {
		case "keyed":
			kind.MaxPerKey = 1
		case "fails":
			kind.Retry = &taskrun.TaskPolicy{Attempts: 3, MinDelay: 10 * time.Millisecond}
		}
		queue.Register(worker, kind, func(ctx context.Context, j queue.Job[taskBody]) error {
			_, fate := w.do(ctx, begunTask{
				ID: j.ID, Epoch: j.Epoch, Type: j.Type, Key: j.Key, Payload: j.Payload, Until: j.Until,
			})
			switch fate {
			case "fail":
				return errors.New("the witness says so")
			case "snooze":
				return queue.PutOff(20 * time.Millisecond)
			}
			return ctx.Err()
		})
	}
	return worker.Run(ctx)
}

// outside works over HTTP, with whichever node answers.
func (w *handWork) outside(ctx context.Context) error {
	var lanes sync.WaitGroup
	for lane := range 3 {
		lanes.Go(func() { w.lane(ctx, fmt.Sprintf("%s-%d", w.name, lane)) })
	}
	lanes.Wait()
	return nil
}

// call asks a node, any of them.
func (w *handWork) call(ctx context.Context, what string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.nodes[rand.IntN(len(w.nodes))]+"/v1/queues/"+what,
		bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 500))
		if reply.StatusCode < 500 {
			w.log.Error("refused", "call", what, "status", reply.StatusCode, "text", string(text))
		}
		return fmt.Errorf("%s: %d %s", what, reply.StatusCode, text)
	}
	return json.NewDecoder(reply.Body).Decode(into)
}

// An outsideTask is what a worker over HTTP is given.
type outsideTask struct {
	ID, Type, Key, Receipt string
	Payload                taskBody
	Until                  time.Time
}

// claimed is the reply to a claim.
type claimed struct {
	Items []outsideTask
	Lost  []string
}

// lane takes tasks, does them one after the other, and says so, until ctx ends: what is
// done goes with the next claim, or alone.
func (w *handWork) lane(ctx context.Context, name string) {
	var types []map[string]any
	for _, one := range handTypes {
		types = append(types, map[string]any{"type": one, "limit": 2})
	}
	done := map[string]int{} // receipts that go with the next claim, and their places
	for ctx.Err() == nil {
		receipts := []string{}
		for r := range done {
			receipts = append(receipts, r)
		}
		var got claimed
		claim := map[string]any{"worker": name, "types": types, "limit": 3, "lease": handLease.Seconds(), "wait": "300ms", "complete": receipts}
		if err := w.call(context.WithoutCancel(ctx), "claim", claim, &got); err != nil {
			clock.Pause(ctx, 50*time.Millisecond)
			continue // whether it was written is not known: it is said again
		}
		w.told(done, receipts, got.Lost)
		clear(done)
		w.work(ctx, got.Items, done)
	}
	if len(done) > 0 {
		w.report(context.WithoutCancel(ctx), "complete", map[string]any{"receipts": keysOf(done)}, done)
	}
}

func keysOf(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

// told tells the witness which ends were accepted.
func (w *handWork) told(places map[string]int, receipts, lost []string) {
	gone := map[string]bool{}
	for _, r := range lost {
		gone[r] = true
	}
	for _, r := range receipts {
		w.tell("told", endedTask{Place: places[r], Lost: gone[r]}, &struct{}{})
	}
}

// work does what was claimed. Heartbeats keep it meanwhile.
func (w *handWork) work(ctx context.Context, tasks []outsideTask, done map[string]int) {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for clock.Pause(beating, handLease/4) {
			var receipts []string
			for _, one := range tasks {
				receipts = append(receipts, one.Receipt)
			}
			if len(receipts) > 0 {
				_ = w.call(beating, "heartbeat", map[string]any{"receipts": receipts, "lease": handLease.Seconds()}, &struct{}{})
			}
		}
	}()
	for _, one := range tasks {
		id, _ := strconv.ParseInt(one.ID, 10, 64)
		epoch, _ := strconv.Atoi(strings.Split(one.Receipt, ".")[1])
		place, fate := w.do(ctx, begunTask{ID: id, Epoch: epoch, Type: one.Type, Key: one.Key, Payload: one.Payload, Until: one.Until})
		item := map[string]any{"receipt": one.Receipt}
		switch fate {
		case "fail":
			item["error"] = "the witness says so"
			w.report(ctx, "fail", map[string]any{"tasks": []any{item}}, nil)
		case "snooze":
			item["delay"] = 0.02
			w.report(ctx, "snooze", map[string]any{"tasks": []any{item}}, nil)
		case "later":
			done[one.Receipt] = place
		default:
			w.report(ctx, "complete", map[string]any{"receipts": []string{one.Receipt}}, map[string]int{one.Receipt: place})
		}
	}
}

// report says what became of tasks, a few times when the answer does not come.
func (w *handWork) report(ctx context.Context, what string, body any, places map[string]int) {
	for range 5 {
		var reply struct{ Lost []string }
		if err := w.call(context.WithoutCancel(ctx), what, body, &reply); err == nil {
			w.told(places, keysOf(places), reply.Lost)
			return
		}
		clock.Pause(ctx, 50*time.Millisecond)
	}
}
