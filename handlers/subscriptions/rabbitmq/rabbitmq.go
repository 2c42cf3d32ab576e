// Package rabbitmq reads queues of RabbitMQ for subscriptions.
package rabbitmq

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/handlers/subscriptions/broker"
)

const (
	consumer = "procaas" // its tag on the channel

	heartbeat = 5 * time.Second // a server that says nothing for three of them is away
	timeout   = 10 * time.Second
	idle      = 2 * time.Second      // how long a Fetch waits
	linger    = 5 * time.Millisecond // how long it waits for more

	// The server sends so many messages ahead. It starts with few, since it does not bound their bytes.
	firstAhead = 16
	mostAhead  = 2 * broker.MaxMessages
)

// A source reads a queue as its only consumer. What it has not acknowledged goes back to its place in the queue when the connection ends,
// and the server lets nobody else read before that. So the order is that of the queue.
type source struct {
	conn    *amqp.Connection
	channel *amqp.Channel // that consumes
	other   *amqp.Channel // that asks
	queue   string

	in    <-chan amqp.Delivery
	after <-chan amqp.Delivery // comes when in has ended; nil for none
	ahead int                  // how many messages the server sends ahead
	held  atomic.Int64         // messages that were handed out and not acknowledged
}

// Open connects to the server, and begins to consume. The queue must exist.
func Open(ctx context.Context, o broker.Options) (broker.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := Connect(ctx, o.Connection)
	if err != nil {
		return nil, err
	}
	s := &source{conn: conn, queue: o.Subscription.Queue, ahead: firstAhead}
	if s.channel, err = conn.Channel(); err == nil {
		s.other, err = conn.Channel()
	}
	if err == nil {
		err = s.consume()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("queue %s: %w", s.queue, err)
	}
	return s, nil
}

// consume lets the server send messages.
func (s *source) consume() error {
	err := s.channel.Qos(s.ahead, 0, false)
	if err == nil {
		const exclusive = true
		s.in, err = s.channel.Consume(s.queue, consumer, false, exclusive, false, false, nil)
	}
	return err
}

// Fetch implements [broker.Source].
func (s *source) Fetch(ctx context.Context) ([]broker.Message, error) {
	var out []broker.Message
	size := 0
	wait := time.NewTimer(idle)
	defer wait.Stop()
	for done := false; !done && len(out) < broker.MaxMessages && size < broker.MaxBytes; {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-wait.C:
			done = true
		case d, more := <-s.in:
			if !more {
				if s.after == nil {
					return nil, fmt.Errorf("queue %s: the server sends no more messages, since the connection or the queue is gone", s.queue)
				}
				s.in, s.after = s.after, nil
				continue
			}
			m := s.message(&d)
			out, size = append(out, m), size+m.Size()
			if len(out) == 1 {
				wait.Reset(linger)
			}
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	s.held.Add(int64(len(out)))
	return out, s.adapt(2 * broker.MaxBytes * len(out) / size)
}

// adapt lets the server send about as many messages ahead as two batches have, by the size of those that came. Messages that the server has
// sent already come first.
func (s *source) adapt(want int) error {
	want = min(max(want, 2), mostAhead, 4*s.ahead)
	if s.after != nil || want > s.ahead/2 && want < 2*s.ahead {
		return nil
	}
	if err := s.channel.Cancel(consumer, false); err != nil {
		return err
	}
	s.ahead = want
	before := s.in
	err := s.consume()
	s.in, s.after = before, s.in
	return err
}

// message makes a message of a delivery. Its id is new with each delivery, because the queue has no places.
func (s *source) message(d *amqp.Delivery) broker.Message {
	headers := make(map[string]any, len(d.Headers)+4)
	for name, value := range d.Headers {
		headers[strings.ToLower(name)] = text(value)
	}
	for name, value := range map[string]string{
		"message-id": d.MessageId, "correlation-id": d.CorrelationId, "type": d.Type, "app-id": d.AppId, "content-type": d.ContentType,
	} {
		if value != "" {
			headers[name] = value
		}
	}
	sent := d.Timestamp
	if sent.IsZero() {
		sent = time.Now()
	}
	return broker.Message{
		ID: s.queue + "/" + rand.Text(), Subject: d.RoutingKey, Headers: headers, Body: d.Body, Time: sent, Receipt: d.DeliveryTag,
	}
}

// text returns the value of a header as a text, as other brokers have them.
func text(value any) string {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(value)
}

// Done implements [broker.Source].
func (s *source) Done(_ context.Context, messages []broker.Message) error {
	s.held.Add(-int64(len(messages)))
	return s.channel.Ack(messages[len(messages)-1].Receipt.(uint64), true) // and all before it
}

// Lag implements [broker.Source].
func (s *source) Lag(context.Context) (int64, error) {
	q, err := s.other.QueueDeclarePassive(s.queue, false, false, false, false, nil)
	return int64(q.Messages) + s.held.Load(), err
}

// Origin implements [broker.Source]. The server keeps no place, so nothing can be forgotten.
func (s *source) Origin() string { return "" }

// Most implements [broker.Source].
func (s *source) Most() int { return 2 * broker.MaxBytes }

// Close implements [broker.Source].
func (s *source) Close() { s.conn.Close() }
