package subscriptions_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/budget"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/secrets"
	"procaas/engine/store"
	"procaas/handlers"
	"procaas/handlers/subscriptions"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/remote"
)

const flow = `
subscriptions:
  - {id: s, type: note, key: !$ message.body, %s}
pipelines:
  - {id: note, on: note, shared-state: {done: false}, stages: [{id: a, handlers: [{id: h, set: {done: true}}]}]}
`

// A world is a topic, and nodes that read it into one list of events.
type world struct {
	t      *testing.T
	store  store.Store
	bundle *tree.Bundle

	mu       sync.Mutex // guards the following
	sent     int        // messages of the topic
	fetched  int        // the most that were fetched
	acked    int
	down     error // why the store refuses events; nil if it does not
	held     bool
	asked    int      // how often a reader asked whether it is
	events   []string // in the order in which they were stored
	repeated int
	known    []string // what the store knew at each open
	changed  chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, fmt.Sprintf(flow, `broker: kafka, servers: ["127.0.0.1:1"], topic: S`))
}

func newWorldOf(t *testing.T, flow string) *world {
	t.Helper()
	b, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(flow)}}, dsl.Options{
		Language: tree.NewLanguage(language.Section()), Types: engine.Types(handlers.All()),
	})
	if b == nil {
		t.Fatal(found)
	}
	return &world{t: t, store: memory.New(time.Now).Ports(), bundle: b, changed: make(chan struct{})}
}

// do changes the world.
func (w *world) do(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until the world is as wanted.
func (w *world) await(what string, is func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	for {
		w.mu.Lock()
		done, changed := is(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.t.Fatalf("%s: it did not come, have %d sent, %d fetched, %d acknowledged", what, w.sent, w.fetched, w.acked)
		}
	}
}

// A node is one node of the world.
type node struct {
	*world
	number  int64
	readers *subscriptions.Readers
	stop    context.CancelFunc
	ended   chan struct{}
}

func (w *world) node(name string) *node {
	w.t.Helper()
	number, err := w.store.Ledger.Join(w.t.Context(), name, time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	n := &node{world: w, number: number, ended: make(chan struct{})}
	n.readers = subscriptions.New(subscriptions.Options{
		Name: name, Engine: n, Store: w.store, Brokers: map[string]broker.Kind{
			"kafka": {Open: n.open}, "nats": {Open: n.open}, "postgres": {Open: n.open}, "rabbitmq": {Open: n.open},
		},
		Secrets: func(secrets.Use) (string, error) { return "", errors.New("no secrets") }, Dial: (&net.Dialer{}).DialContext,
		Memory: budget.New(256 << 20), Metrics: subscriptions.NewMetrics(prometheus.NewRegistry()), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	var ctx context.Context
	ctx, n.stop = context.WithCancel(w.t.Context())
	go func() {
		defer close(n.ended)
		n.readers.Run(ctx)
	}()
	w.t.Cleanup(n.end)
	return n
}

func (n *node) end() {
	n.stop()
	<-n.ended
}

// The following is what readers need of an engine.

func (n *node) NodeNumber() int64         { return n.number }
func (n *node) Bundle() *tree.Bundle      { return n.bundle }
func (n *node) Reloaded() <-chan struct{} { return nil }

func (n *node) HeldAt(string) (reason string, held bool) {
	n.do(func() {
		n.asked++
		held = n.held
	})
	return "the test holds it", held
}

func (n *node) Submit(_ context.Context, all []intake.Submission) ([]intake.Submitted, error) {
	n.mu.Lock()
	down := n.down
	n.mu.Unlock()
	if down != nil {
		return nil, down
	}
	out := make([]intake.Submitted, len(all))
	n.do(func() {
		for i, s := range all {
			if slices.Contains(n.events, s.Event.ID) {
				n.repeated++
				out[i].Receipt = model.Receipt{Duplicate: true}
				continue
			}
			n.events = append(n.events, s.Event.ID)
		}
	})
	return out, nil
}

// A topic reads the messages of the world from the first that is not acknowledged.
type topic struct {
	*node
	next int
}

func (n *node) open(_ context.Context, o broker.Options) (broker.Source, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = append(n.known, o.Known)
	return &topic{node: n, next: n.acked}, nil
}

func (s *topic) Fetch(ctx context.Context) (out []broker.Message, err error) {
	for {
		s.mu.Lock()
		left, changed := s.sent-s.next, s.changed
		s.mu.Unlock()
		if left > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		}
	}
	s.do(func() {
		for s.next < s.sent && len(out) < 10 {
			out = append(out, broker.Message{ID: fmt.Sprintf("S/%04d", s.next), Key: "k", Body: []byte("1"), Receipt: s.next})
			s.next++
		}
		s.fetched = max(s.fetched, s.next)
	})
	return out, nil
}

func (s *topic) Done(_ context.Context, messages []broker.Message) error {
	s.do(func() { s.acked = max(s.acked, messages[len(messages)-1].Receipt.(int)+1) })
	return nil
}

func (s *topic) Lag(context.Context) (int64, error) { return 0, nil }
func (s *topic) Origin() string                     { return "1" }
func (s *topic) Most() int                          { return 1 << 10 }
func (s *topic) Close()                             {}

// inOrder fails if the events are not those of all messages in their order.
func (w *world) inOrder() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) != w.sent || !slices.IsSorted(w.events) {
		w.t.Errorf("want %d events in the order of their messages, have %q", w.sent, w.events)
	}
}

// TestNothingIsFetchedWhileTheStoreRefuses lets the store refuse events. The node has two batches then, acknowledges none of them, and
// stores all when it may.
func TestNothingIsFetchedWhileTheStoreRefuses(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]error{
		"away": errors.New("the store is away"), "overloaded": &intake.OverloadError{After: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.down = down
			n := w.node("a")
			w.do(func() { w.sent = 100 })
			w.await("two batches", func() bool { return w.fetched == 20 })
			if name == "away" {
				patience.Until(t, "the reason", func() bool {
					all, err := n.readers.List(t.Context())
					return err == nil && all[0].State == remote.Failing && all[0].Problem == "store events: the store is away"
				})
			}
			w.do(func() {
				if w.acked != 0 || w.fetched != 20 {
					t.Errorf("want 20 messages fetched and none acknowledged, have %d and %d", w.fetched, w.acked)
				}
				w.down = nil
			})
			w.await("all messages", func() bool { return w.acked == 100 })
			w.inOrder()
		})
	}
}

// TestOneNodeReadsAndAnotherTakesOver lets nodes read in turn. One that stops lets go at once, and the events keep their order.
func TestOneNodeReadsAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.node("a")
	w.do(func() { w.sent = 50 })
	w.await("the first node", func() bool { return w.acked == 50 })
	b := w.node("b")
	a.end()
	w.do(func() { w.sent = 100 })
	w.await("the second node", func() bool { return w.acked == 100 })
	w.inOrder()
	if !slices.Equal(w.known, []string{"", "1"}) {
		t.Errorf("want that the store knows of the topic after the first node has opened it, have %q", w.known)
	}
	if w.repeated > 0 {
		t.Errorf("want each message read once, have %d again", w.repeated)
	}
	all, err := b.readers.List(t.Context())
	if err != nil || all[0].Node != "b" {
		t.Errorf("want that b reads, have %+v (%v)", all, err)
	}
}

// A stuckStore does not say who owns a subscription.
type stuckStore struct {
	store.Documents

	asked chan struct{}
}

func (s stuckStore) Document(ctx context.Context, kind, name string) (store.Document, error) {
	if kind != "subscription-owner" {
		return s.Documents.Document(ctx, kind, name)
	}
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return store.Document{}, ctx.Err()
}

// TestAReaderThatAsksTheStoreCanStop stops a node while the store does not answer it.
func TestAReaderThatAsksTheStoreCanStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := stuckStore{w.store.Documents, make(chan struct{}, 1)}
	w.store.Documents = stuck
	n := w.node("a")
	<-stuck.asked
	n.stop()
	select {
	case <-n.ended:
	case <-time.After(patience.For(30 * time.Second)):
		t.Fatal("the readers of a stopped node must end")
	}
}

// TestTheListSaysTheLastProblem makes a second thing fail after the first one.
func TestTheListSaysTheLastProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.down = errors.New("the store is away")
	n := w.node("a")
	w.do(func() { w.sent = 1 })
	for _, problem := range []string{"the store is away", "the store is full"} {
		w.do(func() { w.down = errors.New(problem) })
		patience.Until(t, problem, func() bool {
			all, err := n.readers.List(t.Context())
			return err == nil && all[0].Problem == "store events: "+problem
		})
	}
	w.do(func() { w.down = nil })
	w.await("the message", func() bool { return w.acked == 1 })
}

// TestAHeldSubscriptionReadsNothing holds a subscription, and lets it go on.
func TestAHeldSubscriptionReadsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.held = true
	n := w.node("a")
	w.do(func() { w.sent = 10 })
	w.await("held", func() bool { return w.asked > 2 })
	if all, err := n.readers.List(t.Context()); err != nil || all[0].State != remote.Held || all[0].Problem == "" {
		t.Errorf("want the subscription held, and why, have %+v (%v)", all, err)
	}
	w.do(func() {
		if w.fetched > 0 {
			t.Errorf("want nothing fetched, have %d", w.fetched)
		}
		w.held = false
	})
	if all, err := n.readers.List(t.Context()); err != nil || all[0].State == remote.Held {
		t.Errorf("want no subscription held as soon as nobody holds it, have %+v (%v)", all, err)
	}
	w.await("all messages", func() bool { return w.acked == 10 })
	w.inOrder()
}
