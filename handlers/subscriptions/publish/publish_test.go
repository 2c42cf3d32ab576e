package publish_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/secrets"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/jetstream"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/publish"
)

const flow = `
brokers: [{id: hub, kind: nats, servers: ["URL"]}]
pipelines: [{id: p, stages: [{id: s, handlers: [{id: tell, publish: {broker: hub, subject: orders.paid}}]}]}]
`

// A node makes calls of the handler type as an engine does.
type node struct {
	t     *testing.T
	pool  *publish.Pool
	dials int // connections that were made

	mu sync.Mutex // guards dials
}

func newNode(t *testing.T) *node {
	n := &node{t: t}
	count := func(ctx context.Context, c *broker.Connection) (broker.Publisher, error) {
		n.mu.Lock()
		n.dials++
		n.mu.Unlock()
		return jetstream.Dial(ctx, c)
	}
	n.pool = publish.NewPool(publish.Options{
		Brokers: map[string]broker.Kind{"nats": {Dial: count}}, Dial: (&net.Dialer{}).DialContext, Metrics: prometheus.NewRegistry(),
		Secrets: func(secrets.Use) (string, error) {
			return "", model.WithClass(model.ClassCredentials, errors.New("PROCAAS_SECRET_HUB is not set"))
		},
	})
	t.Cleanup(n.pool.Close)
	return n
}

func bundle(t *testing.T, url string) *tree.Bundle { return bundleWith(t, url, "") }

// bundleWith adds more to the declaration of the broker.
func bundleWith(t *testing.T, url, more string) *tree.Bundle {
	t.Helper()
	text := strings.NewReplacer("URL\"]", url+"\"]"+more).Replace(flow)
	return enginetest.LoadIn(t, tree.NewLanguage(language.Brokers()), text, publish.Types(nil)...)
}

func (n *node) call(b *tree.Bundle, id string) (model.Result, error) {
	h := publish.Types(n.pool)[0].New().(*publish.Publish)
	h.Broker, h.Subject, h.Body, h.Headers, h.Timeout = "hub", "orders.paid", map[string]any{"a": 1}, map[string]any{"kind": "test", "none": nil}, 10*time.Second
	return h.Handle(n.t.Context(), &engine.Call{
		Path: "p/s/tell", Run: "r-1", Key: "o-1", IdempotencyKey: id, Bundle: b, TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
}

// TestCallsShareAConnection makes calls at once, and while the broker is away. When it is back, the next call connects again.
func TestCallsShareAConnection(t *testing.T) {
	t.Parallel()
	nats := brokertest.StartNATS(t)
	js := nats.Stream(t.Context(), "ORDERS", "orders.>")
	n, b := newNode(t), bundle(t, nats.URL())
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			if _, err := n.call(b, strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n.dials != 1 {
		t.Errorf("want one connection, have %d", n.dials)
	}
	s, err := js.Stream(t.Context(), "ORDERS")
	if err != nil || s.CachedInfo().State.Msgs != 50 {
		t.Fatalf("want 50 messages, have %+v (%v)", s.CachedInfo().State, err)
	}
	sent, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Procaas-Run": "r-1", "X-Procaas-Path": "p/s/tell", "X-Procaas-Key": "o-1", "kind": "test", "none": "",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Nats-Msg-Id": sent.Header.Get("Idempotency-Key"),
	} {
		if have := sent.Header.Get(name); have != want {
			t.Errorf("%s: want %q, have %q", name, want, have)
		}
	}
	nats.Stop()
	for range 2 {
		if _, err := n.call(b, "51"); model.ClassOf(err) != "connection" || model.IsPermanent(err) {
			t.Errorf("want an error of the connection while the broker is away, have %v", err)
		}
	}
	nats.Start()
	if out, err := n.call(b, "51"); err != nil || out.Response.(map[string]any)["duplicate"] != false {
		t.Errorf("want a new connection when the broker is back, have %v (%v)", out, err)
	}
}

// TestASecretThatIsNotThere has another class than a broker that is away, so that operators look in the right place.
func TestASecretThatIsNotThere(t *testing.T) {
	t.Parallel()
	nats := brokertest.StartNATS(t)
	n, b := newNode(t), bundleWith(t, nats.URL(), ", auth: {token: !secret hub}")
	_, err := n.call(b, "1")
	if err = engine.Classify(err); model.ClassOf(err) != model.ClassCredentials || !strings.Contains(err.Error(), "connect to broker hub: PROCAAS_SECRET_HUB is not set") {
		t.Errorf("want the class credentials and the secret, have %q (%v)", model.ClassOf(err), err)
	}
}

// TestConnectionsFollowTheDefinition closes the connection to a broker that a definition no longer has. An earlier run connects again.
func TestConnectionsFollowTheDefinition(t *testing.T) {
	t.Parallel()
	nats := brokertest.StartNATS(t)
	nats.Stream(t.Context(), "ORDERS", "orders.>")
	n, b := newNode(t), bundle(t, nats.URL())
	other := bundle(t, "nats://127.0.0.1:1")
	for i, keep := range []*tree.Bundle{b, other, b} {
		if _, err := n.call(b, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		n.pool.Keep(keep)
	}
	if n.dials != 2 {
		t.Errorf("want a second connection after the definition without the broker, have %d", n.dials)
	}
	if _, err := n.call(other, "4"); err == nil || !strings.Contains(err.Error(), "connect to broker hub") || model.ClassOf(engine.Classify(err)) != "connection" {
		t.Errorf("want an error that names the broker, have %v", err)
	}
}
