package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
)

// A publisher sends messages to the streams that have their subjects.
type publisher struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// Dial connects to JetStream, to send to it.
func Dial(ctx context.Context, c *broker.Connection) (broker.Publisher, error) {
	nc, err := Connect(ctx, c)
	if err != nil {
		return nil, classified(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &publisher{nc, js}, nil
}

// Publish implements [broker.Publisher]. The stream drops a message whose id it has stored within its duplicate window.
func (p *publisher) Publish(ctx context.Context, m *broker.Outgoing) (out broker.Stored, err error) {
	if err := broker.CheckSubject(m.To); err != nil {
		return out, model.Permanent(err)
	}
	send := &nats.Msg{Subject: m.To, Header: nats.Header{}, Data: m.Body}
	for name, value := range m.Headers {
		send.Header.Set(name, value)
	}
	ack, err := p.js.PublishMsg(ctx, send, jetstream.WithMsgID(m.ID))
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		err = fmt.Errorf("no stream has answered for the subject %s: make one with it, or wait until its servers have a leader: %w", m.To, err)
	case err == nil:
		place := map[string]any{"stream": ack.Stream, "sequence": int(ack.Sequence), "duplicate": ack.Duplicate}
		return broker.Stored{Place: place, Duplicate: ack.Duplicate}, nil
	}
	return out, classified(err)
}

// classified adds the class of an error of NATS, by which retries and fallbacks know it.
func classified(err error) error { return broker.Classified(err, sent) }

// sent adds the class of an error that the server has sent, or returns nil for others.
func sent(err error) error {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return model.Permanent(err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrPermissionViolation):
		return model.WithClass(model.ClassCredentials, err)
	case errors.As(err, &refused):
		return model.WithClass(strconv.Itoa(refused.Code), err)
	}
	return nil
}

// Broken implements [broker.Publisher].
func (p *publisher) Broken() bool { return p.nc.IsClosed() }

// Close implements [broker.Publisher].
func (p *publisher) Close() { p.nc.Close() }
