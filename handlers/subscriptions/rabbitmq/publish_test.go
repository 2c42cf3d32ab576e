package rabbitmq_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/rabbitmq"
)

// dial returns a publisher, and a way to cut its connection.
func (r *rig) dial(auth *language.Login, servers ...string) (p broker.Publisher, cut func(), err error) {
	var conn net.Conn
	k := language.Broker{ID: "hub", Kind: "rabbitmq", Servers: servers, Auth: auth}
	p, err = rabbitmq.Dial(r.ctx, &broker.Connection{
		Connection: k.Connection(), Client: "test", Secret: func(name string) (string, error) { return name, nil },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			var err error
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return conn, err
		},
	})
	if err == nil {
		r.t.Cleanup(p.Close)
	}
	return p, func() { conn.Close() }, err
}

// TestMessagesAreConfirmed sends messages at once, to a queue and by an exchange. A subscription reads all that they have.
func TestMessagesAreConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "quorum")
	exchange := t.Name()
	if err := r.sender.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.sender.QueueBind(r.sub.Queue, "orders.*", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	p, _, err := r.dial(nil, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const each = 100
	var calls sync.WaitGroup
	for range each {
		for _, to := range [][2]string{{"", r.sub.Queue}, {exchange, "orders.paid"}} {
			calls.Go(func() {
				out, err := p.Publish(r.ctx, &broker.Outgoing{
					ID: "5e1f", Exchange: to[0], To: to[1], Body: []byte(`{"a":1}`),
					Headers: map[string]string{"Content-Type": "application/json", "Idempotency-Key": "5e1f", "Kind": "test"},
				})
				if err != nil || out.Place["exchange"] != to[0] || out.Place["routing-key"] != to[1] {
					t.Errorf("have %v (%v)", out, err)
				}
			})
		}
	}
	calls.Wait()
	s := r.open()
	from := map[string]int{}
	for n := 0; n < 2*each; {
		got, err := s.Fetch(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got {
			n++
			from[m.Subject]++
			h := m.Headers
			if h["message-id"] != "5e1f" || h["idempotency-key"] != "5e1f" || h["kind"] != "test" || h["content-type"] != "application/json" || string(m.Body) != `{"a":1}` {
				t.Errorf("have %+v", m)
			}
		}
		r.done(s, got)
	}
	if from[r.sub.Queue] != each || from["orders.paid"] != each {
		t.Errorf("want %d by each way, have %v", each, from)
	}
}

// TestWhatRabbitMQDoesNotTake has the errors of messages and of connections, and whether a retry may help. A refusal harms no other call.
func TestWhatRabbitMQDoesNotTake(t *testing.T) {
	t.Parallel()
	r := newRig(t, "classic")
	full := r.sub.Queue + "-full"
	if _, err := r.sender.QueueDeclare(full, true, false, false, false, amqp.Table{"x-max-length": int32(0), "x-overflow": "reject-publish"}); err != nil {
		t.Fatal(err)
	}
	p, cut, err := r.dial(nil, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the server closes the channel of a missing exchange each time
		for _, x := range []struct{ exchange, to, class, text string }{
			{"", "nowhere", "connection", "bind one"},
			{"nowhere", "orders", "404", "declare it"},
			{"amq.direct", "orders", "connection", `no queue takes messages with the routing key "orders"`},
			{"", full, "503", "queue is full"},
			{"", r.sub.Queue, "", ""},
		} {
			_, err := p.Publish(r.ctx, &broker.Outgoing{ID: x.to, Exchange: x.exchange, To: x.to})
			if (err == nil) != (x.text == "") || err != nil && (!strings.Contains(err.Error(), x.text) || model.ClassOf(err) != x.class) {
				t.Errorf("%s %s: want %q, have %v of the class %s", x.exchange, x.to, x.text, err, model.ClassOf(err))
			}
		}
	}
	if p.Broken() {
		t.Error("want the connection to work on")
	}
	late, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := p.Publish(late, &broker.Outgoing{ID: "late", To: r.sub.Queue}); err == nil || p.Broken() {
		t.Errorf("want an end of a call that has no time left, have %v", err)
	}
	cut()
	if _, err := p.Publish(r.ctx, &broker.Outgoing{ID: "cut", To: r.sub.Queue}); model.ClassOf(err) != "connection" || !p.Broken() {
		t.Errorf("want a broken connection, have %v of the class %s", err, model.ClassOf(err))
	}
	if _, _, err := r.dial(nil, "amqp://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || model.ClassOf(err) != "connection" {
		t.Errorf("want an error that names the address, have %v", err)
	}
	wrong := &language.Login{Username: "guest", Password: brokertest.Secret("wrong")}
	if _, _, err := r.dial(wrong, server.URL); err == nil || model.ClassOf(err) != model.ClassCredentials {
		t.Errorf("want an error of the class credentials, have %v of the class %s", err, model.ClassOf(err))
	}
}
