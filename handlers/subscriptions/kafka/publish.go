package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
)

// A publisher is an idempotent producer. What its client repeats by itself, a partition stores once. A later attempt of a call is another
// record, whose header Idempotency-Key says that it is the same message.
type publisher struct {
	client *kgo.Client
	broken atomic.Bool
}

// Dial connects to Kafka, to send to it.
func Dial(ctx context.Context, c *broker.Connection) (broker.Publisher, error) {
	options, err := Connect(c)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(options, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordDeliveryTimeout(timeout))...)
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, classified(err)
	}
	return &publisher{client: client}, nil
}

// Publish implements [broker.Publisher]. It does not wait for a record longer than ctx. The client may still send it then.
func (p *publisher) Publish(ctx context.Context, m *broker.Outgoing) (broker.Stored, error) {
	r := &kgo.Record{Topic: m.To, Value: m.Body}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	for name, value := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	done := make(chan error, 1)
	p.client.Produce(ctx, r, func(_ *kgo.Record, err error) { done <- err })
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		return broker.Stored{Place: map[string]any{"topic": r.Topic, "partition": int(r.Partition), "offset": int(r.Offset)}}, nil
	}
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		// The client gives up all records of a partition when it gives up the first one.
		err = fmt.Errorf("an earlier message of the partition was given up: %v", err) //nolint:errorlint // it is not about this call's time
	}
	if !model.IsPermanent(classified(err)) {
		p.broken.Store(true) // the next call connects anew, and finds out what is wrong
	}
	return broker.Stored{}, classified(err)
}

// classified adds the class of an error of Kafka, by which retries and fallbacks know it.
func classified(err error) error { return broker.Classified(err, sent) }

// sent adds the class of an error that the server has sent, or returns nil for others.
func sent(err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.InvalidRecord):
		return model.Permanent(err)
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return model.WithClass(model.ClassCredentials, err)
	}
	return nil
}

// Broken implements [broker.Publisher].
func (p *publisher) Broken() bool { return p.broken.Load() }

// Close implements [broker.Publisher].
func (p *publisher) Close() { p.client.Close() }
