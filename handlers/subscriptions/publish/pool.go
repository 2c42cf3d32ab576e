package publish

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/tree"
	"procaas/engine/secrets"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// A Pool has the connections of a node to the brokers that its handlers send to: one for each broker.
type Pool struct {
	o    Options
	sent *prometheus.CounterVec

	connecting sync.WaitGroup

	mu  sync.Mutex         // guards the following, and the users of connections
	all map[string]*shared // by how a broker is reached
}

// Options are what a pool needs of its node.
type Options struct {
	Brokers map[string]broker.Kind
	Secrets func(secrets.Use) (string, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics prometheus.Registerer
}

// NewPool makes a pool without connections.
func NewPool(o Options) *Pool {
	p := &Pool{o: o, all: map[string]*shared{}, sent: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_published_messages_total",
		Help: "Messages that handlers sent to brokers, by outcome: stored, duplicate if the broker had it already, or failed.",
	}, []string{"broker", "outcome"})}
	o.Metrics.MustRegister(p.sent)
	return p
}

// A shared is a connection that calls share. It is closed when it is out of the pool and no call uses it.
type shared struct {
	ready     chan struct{} // closed when the following are set
	publisher broker.Publisher
	err       error

	users  int
	pooled bool
}

// publish sends a message to a broker.
func (p *Pool) publish(ctx context.Context, b *language.Broker, m *broker.Outgoing) (broker.Stored, error) {
	out, err := p.send(ctx, b, m)
	outcome := "stored"
	switch {
	case err != nil:
		outcome = "failed"
	case out.Duplicate:
		outcome = "duplicate"
	}
	p.sent.WithLabelValues(b.ID, outcome).Inc()
	return out, err
}

func (p *Pool) send(ctx context.Context, b *language.Broker, m *broker.Outgoing) (broker.Stored, error) {
	at := b.Reached()
	s := p.take(at, b)
	defer p.release(at, s)
	select {
	case <-ctx.Done():
		return broker.Stored{}, ctx.Err()
	case <-s.ready:
	}
	if s.err != nil {
		return broker.Stored{}, fmt.Errorf("connect to broker %s: %w", b.ID, s.err)
	}
	return s.publisher.Publish(ctx, m)
}

// connectTime is the longest time to connect, also for a call that does not wait as long.
const connectTime = 10 * time.Second

func (p *Pool) connect(b *language.Broker) (broker.Publisher, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	return p.o.Brokers[b.Kind].Dial(ctx, &broker.Connection{
		Connection: b.Connection(), Client: "procaas-" + b.ID, Dial: p.o.Dial,
		Secret: func(name string) (string, error) {
			return p.o.Secrets(secrets.Use{Name: name, To: b.ID, Owner: b.Owner})
		},
	})
}

// take returns the connection to a broker, which may not be ready. Connecting uses it, too, and outlives the call that began it.
func (p *Pool) take(at string, b *language.Broker) *shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.all[at]
	if s == nil {
		s = &shared{ready: make(chan struct{}), pooled: true, users: 1}
		p.all[at] = s
		p.connecting.Go(func() {
			defer p.release(at, s)
			defer close(s.ready)
			s.publisher, s.err = p.connect(b)
		})
	}
	s.users++
	return s
}

// release ends the use of a connection. Nobody gets one again that has failed.
func (p *Pool) release(at string, s *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	select {
	case <-s.ready:
	default:
		return // another call is still connecting
	}
	if s.pooled && (s.err != nil || s.publisher.Broken()) {
		p.drop(at, s)
	}
	s.closeUnused()
}

func (p *Pool) drop(at string, s *shared) {
	delete(p.all, at)
	s.pooled = false
}

func (s *shared) closeUnused() {
	if !s.pooled && s.users == 0 && s.publisher != nil {
		s.publisher.Close()
	}
}

// Close closes all connections. No call may use the pool any more.
func (p *Pool) Close() {
	p.connecting.Wait()
	p.keep(nil)
}

// Keep closes the connections to brokers that a definition does not declare. Runs of earlier definitions connect again.
func (p *Pool) Keep(b *tree.Bundle) {
	wanted := map[string]bool{}
	for _, k := range language.AllBrokers(b) {
		wanted[k.Reached()] = true
	}
	p.keep(wanted)
}

func (p *Pool) keep(wanted map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, s := range p.all {
		if !wanted[at] {
			p.drop(at, s)
			s.closeUnused()
		}
	}
}
