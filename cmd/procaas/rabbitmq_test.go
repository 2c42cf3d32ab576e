package main

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/brokertest"
)

// countedQueueFlow counts the messages of each key, those that come before an earlier one too, and sends each on.
const countedQueueFlow = `
subscriptions:
  - id: orders
    broker: rabbitmq
    servers: [URL]
    queue: orders
    type: counted
    event-id: !$ message.headers['message-id']
    key: !$ message.body.key
brokers: [{id: rabbit, kind: rabbitmq, servers: [URL]}]
` + countedPipelines + `      - id: b
        handlers:
          - {id: tell, publish: {broker: rabbit, exchange: counted, routing-key: !$ event.key, body: {n: !$ event.payload.n}}}
`

// TestRabbitMQSurvivesKill9 kills a node that reads a quorum queue and sends to an exchange. Each message becomes one run, in the order of
// its key, and is sent on at least once, with the same message-id for each repeat.
func TestRabbitMQSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	rabbit, err := brokertest.StartRabbit()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rabbit.Stop)
	conn, err := amqp.Dial(rabbit.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	channel, err := conn.Channel()
	must(err)
	_, err = channel.QueueDeclare("orders", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
	must(err)
	_, err = channel.QueueDeclare("counted", true, false, false, false, nil)
	must(err)
	must(channel.ExchangeDeclare("counted", "topic", true, false, false, false, nil))
	must(channel.QueueBind("counted", "#", "counted", false, nil))
	const messages = 10 * countedKeys
	for n := range messages {
		body := fmt.Appendf(nil, `{"key":"k-%d","n":%d}`, n%countedKeys, n)
		must(channel.PublishWithContext(ctx, "", "orders", false, false, amqp.Publishing{MessageId: fmt.Sprint("m-", n), Body: body}))
	}
	sent := func() int {
		q, err := channel.QueueDeclarePassive("counted", true, false, false, false, nil)
		must(err)
		return q.Messages
	}
	c := newCrashing(t, "sqlite:"+t.TempDir()+"/rabbit.db", countedQueueFlow, rabbit.URL)
	for _, least := range []int{messages / 5, messages / 2} {
		node := c.start(ctx)
		for sent() < least {
			if !clock.Pause(ctx, 5*time.Millisecond) {
				t.Fatalf("%d messages were not sent on, only %d", least, sent())
			}
		}
		node.kill()
	}
	node := c.start(ctx)
	awaitCounted(ctx, t, c.client, messages)
	ids := map[string]string{} // by their bodies
	for len(ids) < messages {
		m, ok, err := channel.Get("counted", true)
		must(err)
		if !ok {
			if !clock.Pause(ctx, 5*time.Millisecond) {
				t.Fatalf("want %d messages that were sent on, have %d", messages, len(ids))
			}
			continue
		}
		if before, again := ids[string(m.Body)]; again && before != m.MessageId {
			t.Errorf("want the same id for a repeat of %s, have %s and %s", m.Body, before, m.MessageId)
		}
		ids[string(m.Body)] = m.MessageId
	}
	node.terminate()
}
