package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
)

// A publisher sends messages that the server confirms. Each exchange has a channel of its own, because the server closes a channel after
// an error, with all that was sent on it.
type publisher struct {
	conn *amqp.Connection

	mu  sync.Mutex // guards all
	all map[string]*sending
}

// Dial connects to the first server that answers, to send to it.
func Dial(ctx context.Context, c *broker.Connection) (broker.Publisher, error) {
	conn, err := Connect(ctx, c)
	if err != nil {
		return nil, classified(err)
	}
	return &publisher{conn: conn, all: map[string]*sending{}}, nil
}

// A sending is a channel on which the server confirms messages of one exchange.
type sending struct {
	channel *amqp.Channel
	closed  chan *amqp.Error // has the reason once the channel is closed

	mu       sync.Mutex        // guards the following
	returns  chan amqp.Return  // messages that no queue takes; the server sends them before their confirmations
	returned map[string]string // by id of the messages that calls wait for, why the server has returned them
	reason   *amqp.Error
}

// returnsAhead is how many returned messages may wait until a call looks at them. The connection waits while there are more.
const returnsAhead = 64

// Publish implements [broker.Publisher]. The server stores a repeat again. Its message-id tells readers that it is one.
func (p *publisher) Publish(ctx context.Context, m *broker.Outgoing) (out broker.Stored, err error) {
	s, err := p.sending(m.Exchange)
	if err != nil {
		return out, classified(err)
	}
	send := amqp.Publishing{
		MessageId: m.ID, ContentType: m.Headers["Content-Type"], DeliveryMode: amqp.Persistent, Headers: amqp.Table{}, Body: m.Body,
	}
	for name, value := range m.Headers {
		send.Headers[name] = value
	}
	s.expect(m.ID)
	const mandatory = true // the server returns what no queue takes
	confirmed, err := s.channel.PublishWithDeferredConfirmWithContext(ctx, m.Exchange, m.To, mandatory, false, send)
	stored := false
	if err != nil {
		err = classified(err)
	} else {
		stored, err = confirmed.WaitContext(ctx)
	}
	refused := s.refusal(m.ID)
	switch {
	case err != nil:
		return out, err
	case s.channel.IsClosed() && !stored:
		return out, classified(fmt.Errorf("exchange %q: %w", m.Exchange, s.why()))
	case refused != "":
		return out, model.WithClass("connection", fmt.Errorf(
			"no queue takes messages with the routing key %q from the exchange %q: bind one (%s)", m.To, m.Exchange, refused))
	case !stored:
		return out, model.WithClass("503", errors.New("the server did not store the message: a queue is full, or has failed"))
	}
	return broker.Stored{Place: map[string]any{"exchange": m.Exchange, "routing-key": m.To}}, nil
}

// sending returns the channel of an exchange, a new one if the server has closed it.
func (p *publisher) sending(exchange string) (*sending, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.all[exchange]; s != nil && !s.channel.IsClosed() {
		return s, nil
	}
	c, err := p.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := c.Confirm(false); err != nil {
		return nil, err
	}
	s := &sending{
		channel: c, closed: c.NotifyClose(make(chan *amqp.Error, 1)),
		returns: c.NotifyReturn(make(chan amqp.Return, returnsAhead)), returned: map[string]string{},
	}
	p.all[exchange] = s
	return s, nil
}

// expect begins to wait for a message.
func (s *sending) expect(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned[id] = ""
}

// refusal ends the wait for a message, and returns why the server has returned it, or nothing. It looks at all that was returned, so that the connection goes on.
func (s *sending) refusal(id string) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for more := true; more; {
		select {
		case r, open := <-s.returns:
			more = open
			if _, waits := s.returned[r.MessageId]; waits {
				s.returned[r.MessageId] = strings.ToLower(r.ReplyText)
			}
		default:
			more = false
		}
	}
	why = s.returned[id]
	delete(s.returned, id)
	return why
}

// why returns the reason for which the channel was closed.
func (s *sending) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := <-s.closed; e != nil { // a closed channel has none, and was emptied by another call
		s.reason = e
	}
	if s.reason == nil {
		return amqp.ErrClosed
	}
	return s.reason
}

// classified adds the class of an error of RabbitMQ, by which retries and fallbacks know it.
func classified(err error) error { return broker.Classified(err, sent) }

// sent adds the class of an error that the server has sent, or returns nil for others.
func sent(err error) error {
	var refused *amqp.Error
	switch {
	case errors.Is(err, amqp.ErrCredentials):
		return model.WithClass(model.ClassCredentials, err)
	case !errors.As(err, &refused):
		return nil
	}
	switch refused.Code {
	case amqp.AccessRefused, amqp.NotAllowed:
		return model.WithClass(model.ClassCredentials, err)
	case amqp.NotFound:
		return model.WithClass(strconv.Itoa(refused.Code), fmt.Errorf("%w: declare it on the server first", err))
	case amqp.ContentTooLarge, amqp.PreconditionFailed:
		return model.Permanent(err)
	}
	return nil
}

// Broken implements [broker.Publisher].
func (p *publisher) Broken() bool { return p.conn.IsClosed() }

// Close implements [broker.Publisher].
func (p *publisher) Close() { p.conn.Close() }
