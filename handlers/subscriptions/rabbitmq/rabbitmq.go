// Package rabbitmq reads queues of RabbitMQ for subscriptions, and sends to its exchanges.
package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/handlers/subscriptions/broker"
)

const (
	heartbeat = 5 * time.Second // a server that says nothing for three of them is away
	timeout   = 10 * time.Second
	idle      = 2 * time.Second      // how long a Fetch waits
	linger    = 5 * time.Millisecond // how long it waits for more
)

// A source reads a queue as its only consumer. What it has not acknowledged goes back to its place in the queue when the connection ends,
// and the server lets nobody else read before that, unless a quorum queue has no single active consumer. So the order is that of the queue.
type source struct {
	conn    *amqp.Connection
	channel *amqp.Channel    // that consumes
	other   *amqp.Channel    // that asks
	closed  chan *amqp.Error // has the reason once channel is closed
	queue   string

	in   <-chan amqp.Delivery
	held atomic.Int64 // messages that were handed out and not acknowledged
}

// Open connects to the server, and begins to consume. The queue must exist.
func Open(ctx context.Context, o broker.Options) (broker.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := Connect(ctx, o.Connection)
	if err != nil {
		return nil, err
	}
	s := &source{conn: conn, queue: o.Subscription.Queue}
	if s.channel, err = conn.Channel(); err == nil {
		s.closed = s.channel.NotifyClose(make(chan *amqp.Error, 1))
		s.other, err = conn.Channel()
	}
	if err == nil {
		err = s.channel.Qos(o.Subscription.Prefetch, 0, false)
	}
	if err == nil {
		const exclusive = true // quorum queues ignore it
		s.in, err = s.channel.Consume(s.queue, "", false, exclusive, false, false, nil)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("queue %s: %w", s.queue, err)
	}
	return s, nil
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
				return nil, fmt.Errorf("queue %s: the server sends no more messages: %w", s.queue, s.why())
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
	return out, nil
}

// why returns why the server sends no more.
func (s *source) why() error {
	select {
	case e := <-s.closed:
		if e != nil {
			return e
		}
		return amqp.ErrClosed
	default:
		return errors.New("the queue is gone")
	}
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
