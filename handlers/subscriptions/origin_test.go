package subscriptions_test

import (
	"fmt"
	"testing"

	"procaas/engine/checkpoint"
)

// TestOriginSaysWhichMessageAnEventWas reads the place of a message from the id of its event.
func TestOriginSaysWhichMessageAnEventWas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ subscription, source, id, want string }{
		{"broker: kafka, servers: [\"127.0.0.1:1\"], topic: trips", "s", "trips/0a1b2c3d4e5f/3/1234-0-18c4f0e2b9a", "subscription s: partition 3, offset 1234 of the topic trips of kafka"},
		{"broker: nats, servers: [\"nats://127.0.0.1:1\"], stream: ORDERS", "s", "ORDERS/17-18c4f0e2b9a30c00", "subscription s: message 17 of the stream ORDERS of nats"},
		{"broker: postgres, servers: [\"postgres://127.0.0.1:1/d\"], table: app.outbox", "s", "app.outbox/a-7:2-0a1b2c3d4e5f", "subscription s: row a-7:2 of the table app.outbox of postgres"},
		{"broker: rabbitmq, servers: [\"amqp://127.0.0.1:1\"], queue: jobs", "s", "jobs/XYZ", "subscription s: queue jobs of rabbitmq"},
		// An id of the sender says nothing of a place.
		{"broker: nats, servers: [\"nats://127.0.0.1:1\"], stream: ORDERS, event-id: !$ message.body.id", "s", "ORDERS/17-1", "subscription s: stream ORDERS of nats"},
		{"broker: nats, servers: [\"nats://127.0.0.1:1\"], stream: ORDERS", "gone", "ORDERS/17-1", "subscription gone"},
	} {
		w := newWorldOf(t, fmt.Sprintf(flow, c.subscription))
		n := w.node("a")
		event := checkpoint.EventView{Source: "subscriptions/" + c.source, ID: c.id}
		if have := n.readers.Origin(t.Context(), event); have != c.want {
			t.Errorf("%s: want %q, have %q", c.id, c.want, have)
		}
		event.Source = "orders"
		if have := n.readers.Origin(t.Context(), event); have != "" {
			t.Errorf("want nothing of the event of another sender, have %q", have)
		}
		n.end()
	}
}

// TestOriginCountsRepeats lets a broker send messages again, to several nodes. Each knows of the last 500 events that came again.
func TestOriginCountsRepeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	read := func(name string, messages int) {
		t.Helper()
		w.do(func() { w.acked, w.sent = 0, messages })
		n := w.node(name)
		w.await("all messages", func() bool { return w.acked == messages })
		n.end()
	}
	says := func(id, want string) {
		t.Helper()
		n := w.node("last")
		n.end()
		if have := n.readers.Origin(t.Context(), checkpoint.EventView{Source: "subscriptions/s", ID: id}); have != want {
			t.Errorf("%s: want %q, have %q", id, want, have)
		}
	}
	read("a", 20)
	says("S/0019", "subscription s: topic S of kafka")
	read("b", 20)
	read("c", 30)
	says("S/0019", "subscription s: topic S of kafka; submitted 3 times, and stored once")
	says("S/0029", "subscription s: topic S of kafka")
	read("d", 600)
	read("d", 600)
	says("S/0599", "subscription s: topic S of kafka; submitted 2 times, and stored once")
	says("S/0050", "subscription s: topic S of kafka")
}
