package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/handoff/reference"
	balancerremote "procaas/handlers/balancer/remote"
)

// TestBalancerOutlivesItsNode loses the node that balances while it has decided about
// moves and not applied them yet. The other one continues from there.
func TestBalancerOutlivesItsNode(t *testing.T) {
	t.Parallel()
	t.Run("kill -9", func(t *testing.T) {
		t.Parallel()
		b := newBalanced(t, steadyLease)
		number, victim := b.decide()
		b.nodes[victim].kill()
		b.takenOver(number, 1-victim)
		b.nodes[1-victim].terminate()
	})
	t.Run("paused beyond its lease", func(t *testing.T) {
		t.Parallel()
		b := newBalanced(t, "1s")
		number, victim := b.decide()
		process := b.nodes[victim].cmd.Process
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		b.takenOver(number, 1-victim)
		b.ban(1-victim, "w1") // what the paused node has decided is not to come back after that
		b.settled(1-victim, "w1", "w2")
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		b.rejoined(1-victim, victim, number)
		before := b.assignment()
		b.nodes[1-victim].kill() // the one that has woken is the balancer now
		b.unban(victim, "w1")
		b.ban(victim, "w3")
		if after := b.settled(victim, "w2", "w3"); after.Version <= before.Version {
			t.Errorf("want a version after %d, have %d", before.Version, after.Version)
		}
		b.nodes[victim].terminate()
	})
}

// A balanced cluster has three workers in this process and two nodes of their own.
type balanced struct {
	t       *testing.T
	store   store.Store
	workers []*reference.Worker
	nodes   []*child
	clients []*client.Client

	shut  atomic.Bool   // workers hold preparations until open is closed, so that nothing is applied
	held  chan struct{} // has an element when they do
	open  chan struct{}
	letGo func()
}

func newBalanced(t *testing.T, lease string) *balanced {
	t.Helper()
	b := &balanced{t: t, held: make(chan struct{}, 1), open: make(chan struct{})}
	b.letGo = sync.OnceFunc(func() { close(b.open) })
	dsn, dir := enginetest.MigratedPostgres(t), t.TempDir()
	var list strings.Builder
	for i := range 3 {
		o := reference.DefaultOptions()
		o.ID, o.Cluster, o.Partitions = fmt.Sprint("w", i+1), "fanout", 12
		w := reference.New(o)
		t.Cleanup(w.Close)
		s := httptest.NewServer(b.gate(w.Handler()))
		t.Cleanup(s.Close)
		b.workers = append(b.workers, w)
		fmt.Fprintf(&list, "      - {id: w%d, url: %q}\n", i+1, s.URL)
	}
	t.Cleanup(b.letGo) // before the servers close, which wait for it
	pipeline, err := os.ReadFile("../../pipelines/balancer/balance.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patient := strings.NewReplacer("every: 2s", "every: 200ms", "timeout: 5s", "timeout: 2m", "phase: prepare\n",
		"phase: prepare\n              timeout: 1m\n")
	for name, text := range map[string]string{
		"balance.yaml": patient.Replace(string(pipeline)),
		"cluster.yaml": "clusters:\n  - id: fanout\n    partitions: 12\n    step: 200ms\n    healthcheck: {timeout: 1m}\n    workers:\n" +
			list.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		c := &crashing{t: t, store: dsn, listen: freeAddress(t), pipelines: dir, name: fmt.Sprint("node-", i), flags: []string{"--lease", lease}}
		b.nodes = append(b.nodes, c.start(t.Context()))
		b.clients = append(b.clients, client.New("http://"+c.listen, ""))
	}
	if b.store, err = (stores.Options{DSN: dsn}).Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.store.Close() })
	b.watch()
	b.settled(0)
	return b
}

// gate holds preparations while it is shut, of whichever node: one that stalls may lose
// its run to the other at any time.
func (b *balanced) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == handoff.PathPrepare && b.shut.Load() {
			select {
			case b.held <- struct{}{}:
			default:
			}
			<-b.open
		}
		next.ServeHTTP(w, r)
	})
}

// watch compares all that is seen of the assignment until the end of the test with what
// was seen before.
func (b *balanced) watch() {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last := clusters.Assignment{Cluster: "fanout"}
		for clock.Pause(ctx, 5*time.Millisecond) {
			a, err := clusters.ReadAssignment(ctx, b.store.Documents, "fanout")
			if err != nil {
				continue // the store is busy
			}
			if a.Version < last.Version || a.Version == last.Version && !reflect.DeepEqual(a, last) {
				b.t.Errorf("the assignment %+v was followed by %+v", last, a)
				return
			}
			last = a
		}
	}()
	b.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// decide bans w2 and returns the node that is about to apply the moves, which waits for a
// worker: its number in the store, and which it is.
func (b *balanced) decide() (number int64, which int) {
	b.t.Helper()
	b.shut.Store(true)
	b.ban(0, "w2")
	b.eventually("a decision that is about to be applied", func() bool {
		select {
		case <-b.held:
			return true
		default:
			return false
		}
	})
	b.eventually("the node that decided", func() bool {
		nodes, err := b.clients[0].Nodes(b.t.Context())
		if err != nil {
			return false
		}
		for _, n := range nodes {
			if n.Alive && n.Runs > 0 {
				number, which = n.Node, int(n.Name[len(n.Name)-1]-'0')
				return true
			}
		}
		return false
	})
	return number, which
}

// takenOver waits until another node has carried out what was decided, and checks that
// the first one can write nothing any more.
func (b *balanced) takenOver(number int64, by int) {
	b.t.Helper()
	b.letGo()
	a := b.settled(by, "w2")
	if a.Epoch <= 0 || a.Epoch == number {
		b.t.Errorf("want an assignment by another node than %d, have %+v", number, a)
	}
	d, err := b.store.Documents.Document(b.t.Context(), clusters.DocumentAssignment, "fanout")
	if err != nil {
		b.t.Fatal(err)
	}
	old, err := json.Marshal(clusters.Assignment{Workers: a.Workers, Owners: make([]int, 12), Since: make([]int64, 12)})
	if err != nil {
		b.t.Fatal(err)
	}
	write := store.DocumentWrite{Kind: d.Kind, Name: d.Name, Version: d.Version, Value: old}
	if _, err := b.store.Documents.WriteDocuments(b.t.Context(), number, []store.DocumentWrite{write}, nil); !errors.Is(err,
		store.ErrFenced) {
		b.t.Errorf("want node %d to be fenced, have %v", number, err)
	}
}

// settled waits until the workers hold all partitions as they are assigned, those that
// are banned none.
func (b *balanced) settled(by int, banned ...string) (a clusters.Assignment) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("all partitions off %v", banned), func() bool {
		a = b.assignment()
		return a.Version > 0 && b.asAssigned(&a, banned)
	})
	b.eventually("the assignment from the node that is left", func() bool {
		v, err := balancerremote.Cluster(b.t.Context(), b.clients[by], "fanout")
		return err == nil && v.Version >= a.Version
	})
	return a
}

// asAssigned reports whether each partition is held by its owner, and by nobody else.
func (b *balanced) asAssigned(a *clusters.Assignment, banned []string) bool {
	held := map[int]string{}
	for i, w := range b.workers {
		for _, p := range w.Holder().State().Partitions {
			if p.Phase == handoff.Held || p.Phase == handoff.Releasing {
				held[p.Partition] += fmt.Sprint("w", i+1)
			}
		}
	}
	for p := range a.Owners {
		owner, ok := a.Owner(p)
		if !ok || held[p] != owner.ID {
			return false
		}
		if slices.Contains(banned, owner.ID) {
			return false
		}
	}
	return len(held) == 12
}

func (b *balanced) assignment() clusters.Assignment {
	a, err := clusters.ReadAssignment(b.t.Context(), b.store.Documents, "fanout")
	if err != nil {
		return clusters.Assignment{}
	}
	return a
}

// rejoined waits until a node that was fenced has come back under a new number.
func (b *balanced) rejoined(at, which int, number int64) {
	b.t.Helper()
	b.eventually("the node to join anew", func() bool {
		nodes, err := b.clients[at].Nodes(b.t.Context())
		if err != nil {
			return false
		}
		for _, n := range nodes {
			if n.Alive && n.Node > number && n.Name == fmt.Sprint("node-", which) {
				return true
			}
		}
		return false
	})
}

func (b *balanced) ban(at int, worker string)   { b.t.Helper(); b.pull(at, worker, false) }
func (b *balanced) unban(at int, worker string) { b.t.Helper(); b.pull(at, worker, true) }

func (b *balanced) pull(at int, worker string, release bool) {
	b.t.Helper()
	pull := clusters.LeverPull{Lever: clusters.LeverBan, Worker: worker, Partition: -1, Release: release}
	b.eventually("the lever of "+worker, func() bool {
		_, err := balancerremote.PullLever(b.t.Context(), b.clients[at], "fanout", pull, "test")
		return err == nil
	})
}

func (b *balanced) eventually(what string, done func() bool) {
	b.t.Helper()
	for over := patience.Over(time.Minute); !done(); {
		if !clock.Pause(b.t.Context(), 10*time.Millisecond) || over() {
			b.t.Fatalf("%s: not in time; have %+v", what, b.assignment())
		}
	}
}
