package subscriptions

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/subscriptions/remote"
)

// docStatus are documents with what the owner of a subscription says of it.
const docStatus = "subscription-status"

// These are the outcomes of messages.
const (
	outcomeAccepted  = "accepted"
	outcomeDuplicate = "duplicate"
	outcomeIgnored   = "ignored"
	outcomeDead      = "dead"
)

// Metrics are those of subscriptions.
type Metrics struct {
	messages                   *prometheus.CounterVec
	lag, connected, deadLetter *prometheus.GaugeVec
}

// NewMetrics makes and registers the metrics.
func NewMetrics(to prometheus.Registerer) *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"subscription"})
	}
	m := &Metrics{
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "procaas_subscription_messages_total",
			Help: "Messages of brokers, by outcome: accepted, duplicate, ignored, or dead if they could become no event.",
		}, []string{"subscription", "outcome"}),
		lag: gauge("procaas_subscription_lag", "Messages that are not acknowledged yet. Only the node that reads a subscription has it."),
		connected: gauge("procaas_subscription_connected",
			"1 while the subscription is read or held, 0 while it fails. Only the node that reads a subscription has it."),
		deadLetter: gauge("procaas_subscription_dead_letters", "Messages that wait for operators. Only the node that reads a subscription has it."),
	}
	to.MustRegister(m.messages, m.lag, m.connected, m.deadLetter)
	return m
}

// seen is what a reader knows of its subscription. Other nodes learn it from the store.
type seen struct {
	metrics *Metrics
	id      string

	mu      sync.Mutex // guards the following
	owned   bool
	failing bool
	now     remote.Subscription
	told    remote.Subscription
}

func (s *seen) count(outcome string, n int) {
	if n == 0 {
		return
	}
	s.metrics.messages.WithLabelValues(s.id, outcome).Add(float64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch outcome {
	case outcomeAccepted:
		s.now.Accepted += int64(n)
	case outcomeDuplicate:
		s.now.Duplicate += int64(n)
	case outcomeIgnored:
		s.now.Ignored += int64(n)
	}
}

func (s *seen) lag(n int64) {
	s.metrics.lag.WithLabelValues(s.id).Set(float64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Lag = n
}

func (s *seen) letters(n int) { s.metrics.deadLetter.WithLabelValues(s.id).Set(float64(n)) }

// own notes whether this node owns the subscription, and returns whether it did. The metrics are those of the owner.
func (s *seen) own(is bool) (did bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	did, s.owned = s.owned, is
	if did && !is {
		for _, g := range []*prometheus.GaugeVec{s.metrics.lag, s.metrics.connected, s.metrics.deadLetter} {
			g.DeleteLabelValues(s.id)
		}
	}
	return did
}

func (s *seen) isOwned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned
}

// state notes what the reader does. It returns whether it begins or ceases to fail.
func (s *seen) state(state, problem string) (begins, ceases bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failing := state == remote.Failing
	begins, ceases = failing && !s.failing, !failing && s.failing
	s.now.State, s.now.Problem, s.failing = state, problem, failing
	if s.owned {
		up := 1.0
		if failing {
			up = 0
		}
		s.metrics.connected.WithLabelValues(s.id).Set(up)
	}
	return begins, ceases
}

// connected notes that the reader reads.
func (r *reader) connected(ctx context.Context) {
	if _, ceases := r.seen.state(remote.Reading, ""); ceases {
		r.m.Log.Info("the subscription is read again", "subscription", r.seen.id)
	}
	all, _, err := r.m.letters.list(ctx, r.seen.id)
	if err == nil {
		r.seen.letters(len(all))
	}
	r.publish(ctx)
}

// recovered notes that what has failed while the broker answered works again.
func (r *reader) recovered(ctx context.Context) {
	if _, ceases := r.seen.state(remote.Reading, ""); ceases {
		r.m.Log.Info("the subscription is read again", "subscription", r.seen.id)
		r.publish(ctx)
	}
}

// trouble notes an error. The log says the first one, and the list the last one.
func (r *reader) trouble(ctx context.Context, err error) {
	if begins, _ := r.seen.state(remote.Failing, err.Error()); begins {
		r.m.Log.Warn("a subscription is not read, trying again", "subscription", r.seen.id, "error", err)
	}
	r.publish(ctx)
}

// tell notes a state, or none, and tells the other nodes.
func (r *reader) tell(ctx context.Context, state, problem string) {
	if state != "" {
		r.seen.state(state, problem)
	}
	r.publish(ctx)
}

// publish writes what the owner knows to the store, if it has changed.
func (r *reader) publish(ctx context.Context) {
	s := &r.seen
	s.mu.Lock()
	now := s.now
	same, owned := now == s.told, s.owned
	s.told = now
	s.mu.Unlock()
	if same || !owned {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellEvery)
	defer cancel()
	at := r.m.Now().UTC().Truncate(time.Millisecond)
	now.Node, now.Seen = r.m.Name, &at
	_, err := r.m.Store.Documents.WriteDocuments(ctx, r.m.Engine.NodeNumber(), []store.DocumentWrite{{
		Kind: docStatus, Name: r.statusName(), Version: store.AnyVersion, Value: model.EncodeJSON(now),
	}}, nil)
	if err != nil {
		s.mu.Lock()
		s.told = remote.Subscription{}
		s.mu.Unlock()
	}
}

// statusName is the name of the document with what this node says. Each node that shares a subscription has its own.
func (r *reader) statusName() string {
	if r.isShared() {
		return r.seen.id + "/" + r.m.Name
	}
	return r.seen.id
}

// join returns what two nodes say of the subscription that they share.
func join(a, b remote.Subscription) remote.Subscription {
	if a.Seen == nil {
		return b
	}
	if b.State == remote.Failing {
		a.State, a.Problem = b.State, b.Problem
	}
	a.Node += ", " + b.Node
	a.Accepted, a.Duplicate, a.Ignored = a.Accepted+b.Accepted, a.Duplicate+b.Duplicate, a.Ignored+b.Ignored
	if b.Seen.After(*a.Seen) {
		a.Seen, a.Lag = b.Seen, b.Lag // each knows that of all partitions
	}
	return a
}

// List lists the subscriptions with what their nodes last said.
func (m *Readers) List(ctx context.Context) ([]remote.Subscription, error) {
	said, err := m.Store.Documents.DocumentsOf(ctx, docStatus, "")
	if err != nil {
		return nil, err
	}
	nodes, err := m.Store.Ledger.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[string]remote.Subscription{}
	for _, d := range said {
		var one remote.Subscription
		if err := json.Unmarshal(d.Value, &one); err != nil {
			return nil, err
		}
		id, node, shared := strings.Cut(d.Name, "/")
		if shared && !slices.ContainsFunc(nodes, func(n store.NodeInfo) bool { return n.Name == node && n.Alive }) {
			continue
		}
		byID[id] = join(byID[id], one)
	}
	all := []remote.Subscription{}
	for _, s := range m.declared() {
		one := byID[s.ID]
		if one.State == "" {
			one.State = remote.Starting
		}
		if why, held := m.Engine.HeldAt(s.Path()); held {
			one.State, one.Problem = remote.Held, why
		} else if one.State == remote.Held {
			one.State, one.Problem = remote.Starting, "" // nobody holds it now, which its node has not noticed yet
		}
		list, _, err := m.letters.list(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		one.ID = s.ID
		one.Broker = s.Broker
		one.From = s.From()
		one.Owner = s.Owner
		one.DeadLetters = len(list)
		all = append(all, one)
	}
	return all, nil
}
