package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
)

// tortureLease is the lease of tortured nodes. It is short, so that much happens.
const tortureLease = time.Second

// startWithin is how long a node may take to serve, on a busy machine too.
const startWithin = time.Minute

// A victim is a node that is killed, paused and cut off from its store, and
// started again as often.
type victim struct {
	t      *testing.T
	number int
	binary string                   // the program; empty for this one
	files  string                   // its pipelines
	world  func(process int) string // where a process of it reaches the service that it calls
	proxy  *enginetest.Proxy
	store  string
	listen string
	lease  time.Duration
	drain  time.Duration
	flags  []string // more of them
	client *client.Client
	random *rand.Rand
	log    *os.File
	stderr sync.WaitGroup

	process *exec.Cmd // nil while the node is down
	starts  int

	mu     sync.Mutex // guards the following
	lapses []lapse
	faults map[string]int
}

// id names one process among all of the test.
func (v *victim) id() int { return v.number*10_000 + v.starts }

func newVictim(t *testing.T, number int, seed uint64, w *world, db *enginetest.Cluster) *victim {
	t.Helper()
	proxy, err := enginetest.StartProxy(db.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	store, err := proxy.Through(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{
		t: t, number: number, files: "../../testdata/torture", world: w.url, proxy: proxy, store: store, listen: freeAddress(t),
		lease: tortureLease, drain: 5 * time.Second,
		random: rand.New(rand.NewPCG(seed, uint64(number)+10)), faults: map[string]int{},
	}
	v.client = client.New("http://"+v.listen, "")
	if v.log, err = os.Create(filepath.Join(t.ArtifactDir(), fmt.Sprintf("node-%d.log", number))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.end(syscall.SIGKILL)
		_ = v.log.Close()
	})
	return v
}

// start starts the node, again and again until it serves, as a supervisor would.
func (v *victim) start(ctx context.Context) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; clock.Pause(ctx, pause) {
		v.starts++
		args := []string{
			"serve", "--store", v.store, "--pipelines", v.files, "--listen", v.listen,
			"--log-format", "json", "--lease", v.lease.String(), "--drain", v.drain.String(), "--name", fmt.Sprint(v.id()),
			"--service", "world=" + v.world(v.id()),
		}
		cmd := exec.Command(cmp.Or(v.binary, "procaas"), append(args, v.flags...)...)
		stderr, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			v.t.Errorf("node %d: %v", v.number, err)
			return
		}
		v.process = cmd
		serving := make(chan bool, 1)
		process := v.id()
		v.stderr.Go(func() { v.read(bufio.NewScanner(stderr), process, serving) })
		select {
		case ok := <-serving:
			if ok {
				return
			}
		case <-time.After(startWithin):
		case <-ctx.Done():
			return
		}
		v.end(syscall.SIGKILL)
	}
}

// read keeps what the node logs, and notes when it loses its runs.
func (v *victim) read(lines *bufio.Scanner, process int, serving chan<- bool) {
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Fprintf(v.log, "%s\n", lines.Bytes())
		var line struct{ Msg string }
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch line.Msg {
		case "serving":
			serving <- true
		case "node is fenced, joining anew", "calls are still under way at the end of the drain time, they are broken off":
			v.lapse(process)
		}
	}
	select {
	case serving <- false:
	default:
	}
}

func (v *victim) lapse(process int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lapses = append(v.lapses, lapse{process, time.Now()})
}

// end ends the process, and waits for its end.
func (v *victim) end(sig syscall.Signal) {
	if v.process == nil {
		return
	}
	_ = v.process.Process.Signal(sig) // it may have ended by itself; Wait tells
	v.stderr.Wait()
	if err := v.process.Wait(); err != nil {
		// It could not say goodbye: it was killed, or its store was not there.
		v.lapse(v.id())
		v.note("ends without goodbye")
		v.t.Logf("node %d ends with %v", v.id(), err)
	}
	v.process = nil
}

// between draws a duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// torture does to the node what may happen to one, until ctx ends.
func (v *victim) torture(ctx context.Context) {
	for clock.Pause(ctx, between(v.random, 200*time.Millisecond, 2*time.Second)) {
		v.proxy.LoseCommits(0.04, v.random.Uint64())
		long := between(v.random, tortureLease/3, 5*tortureLease/2)
		switch what := v.random.IntN(10); what {
		case 0, 1:
			v.note("kill -9")
			v.end(syscall.SIGKILL)
			clock.Pause(ctx, long/2)
			v.start(ctx)
		case 2, 3:
			v.note("SIGSTOP")
			_ = v.process.Process.Signal(syscall.SIGSTOP)
			clock.Pause(ctx, long)
			_ = v.process.Process.Signal(syscall.SIGCONT)
		case 4, 5:
			v.note("held bytes")
			v.proxy.Hold(long)
			clock.Pause(ctx, long)
		case 6:
			v.note("cut")
			v.proxy.Cut()
		case 7:
			v.note("refused connections")
			v.proxy.Refuse(long)
			clock.Pause(ctx, long)
		case 8:
			v.note("late bytes")
			v.proxy.Delay(between(v.random, 5*time.Millisecond, 60*time.Millisecond), long)
		case 9:
			v.note("SIGTERM")
			v.end(syscall.SIGTERM)
			v.start(ctx)
		}
		if v.process == nil {
			v.start(ctx)
		}
	}
	v.proxy.LoseCommits(0, 0)
}

func (v *victim) note(fault string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults[fault]++
}

// tortureServer restarts PostgreSQL until ctx ends, mostly by a crash. It returns
// the number of restarts. The first is after first at the latest, and there is one on a
// machine that pauses until ctx has ended, too.
func tortureServer(ctx context.Context, t *testing.T, db *enginetest.Cluster, seed uint64, first time.Duration) int {
	random := rand.New(rand.NewPCG(seed, 2))
	for restarts := 0; ; restarts++ {
		after := between(random, 3*time.Second, 8*time.Second)
		waiting := ctx
		if restarts == 0 {
			after, waiting = min(after, first), t.Context()
		}
		if !clock.Pause(waiting, after) || restarts > 0 && ctx.Err() != nil {
			return restarts
		}
		how := enginetest.StopImmediate
		if random.IntN(3) == 0 {
			how = enginetest.StopFast
		}
		if err := db.Restart(context.WithoutCancel(ctx), how); err != nil {
			t.Errorf("restart of PostgreSQL: %v", err)
			return restarts
		}
	}
}
