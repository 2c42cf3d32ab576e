// Package jetstream reads streams of NATS JetStream for subscriptions.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"procaas/handlers/subscriptions/broker"
)

const (
	// ackWait is after how long the server sends a message again that was not acknowledged. It bounds how long the messages of a
	// node that died stay assigned to it. A slower store does no harm: what comes again is known.
	ackWait = 3 * time.Second

	// mostPending is how many messages may be assigned and not acknowledged. It is twice what a node holds, so that its successor
	// gets new ones at once.
	mostPending = 4 * broker.MaxMessages

	idle    = 2 * time.Second // how long a Fetch waits
	timeout = 10 * time.Second
)

// A source reads a stream through a durable consumer.
//
// The server assigns each message to one reader, and again after ackWait. So after a reader has died, new messages would come before
// those that it had. The source never trusts that order: it hands out messages in the order of the stream. A hole in the numbers of
// assignments means that another reader had some. Then the source reads everything after its last message from the stream itself.
type source struct {
	nc       *nats.Conn
	stream   jetstream.Stream
	consumer jetstream.Consumer
	made     time.Time // when the consumer was made: one that is made anew counts from 1
	filter   string

	batch jetstream.MessageBatch // under way; nil for none
	held  jetstream.Msg          // comes after what is read from the stream; nil for none

	last     uint64        // all messages up to here were handed out
	upTo     uint64        // messages up to here must be read from the stream
	assigned uint64        // number of the last assignment that was seen
	durable  atomic.Uint64 // all messages up to here need no more than an acknowledgement
}

// Open connects to JetStream. It makes the consumer if there is none.
func Open(ctx context.Context, o broker.Options) (broker.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nc, err := Connect(ctx, o.Connection)
	if err != nil {
		return nil, err
	}
	s := &source{nc: nc, filter: o.Subscription.Filter}
	if err := s.open(ctx, o); err != nil {
		nc.Close()
		return nil, err
	}
	return s, nil
}

func (s *source) open(ctx context.Context, o broker.Options) error {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	if s.stream, err = js.Stream(ctx, o.Subscription.Stream); err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = fmt.Errorf("make it first, as with nats stream add %s --subjects SUBJECTS: %w", o.Subscription.Stream, err)
		}
		return fmt.Errorf("stream %s: %w", o.Subscription.Stream, err)
	}
	want := jetstream.ConsumerConfig{
		Durable: o.Subscription.GroupName(), FilterSubject: s.filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		MaxAckPending: mostPending, MaxDeliver: -1, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	known, err := s.stream.Consumer(ctx, want.Durable)
	switch {
	case err == nil: // where it began cannot be changed
		c := known.CachedInfo().Config
		want.DeliverPolicy, want.OptStartSeq, want.OptStartTime = c.DeliverPolicy, c.OptStartSeq, c.OptStartTime
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("consumer %s of stream %s: %w", want.Durable, o.Subscription.Stream, err)
	default:
		fresh, err := o.Begin(s.Origin())
		if err != nil {
			return err
		}
		if fresh {
			want.DeliverPolicy = jetstream.DeliverNewPolicy
		}
	}
	if s.consumer, err = s.stream.CreateOrUpdateConsumer(ctx, want); err != nil {
		return fmt.Errorf("consumer %s of stream %s: %w", want.Durable, o.Subscription.Stream, err)
	}
	at, err := s.consumer.Info(ctx)
	if err != nil {
		return err
	}
	s.made = at.Created
	s.last = at.AckFloor.Stream
	s.upTo = at.Delivered.Stream
	s.assigned = at.Delivered.Consumer
	s.durable.Store(s.last)
	return nil
}

// Fetch implements [broker.Source].
func (s *source) Fetch(ctx context.Context) ([]broker.Message, error) {
	if s.last < s.upTo {
		return s.reread(ctx)
	}
	var out []broker.Message
	size := 0
	if held := s.held; held != nil {
		s.held = nil
		m, err := s.take(held)
		if err != nil {
			return nil, err
		}
		out, size = append(out, m), m.Size()
	}
	for len(out) < broker.MaxMessages && size < broker.MaxBytes {
		in, err := s.next(ctx, len(out) == 0)
		if err != nil {
			return nil, err
		}
		if in == nil {
			return out, nil
		}
		meta, err := in.Metadata()
		if err != nil {
			return nil, err
		}
		gap := meta.Sequence.Consumer != s.assigned+1
		s.assigned = meta.Sequence.Consumer
		floor := uint64(0)
		if gap {
			if floor, err = s.floor(ctx); err != nil {
				return nil, err
			}
		}
		switch {
		case meta.Sequence.Stream <= s.durable.Load():
			if err := in.Ack(); err != nil {
				return nil, err
			}
		case meta.Sequence.Stream <= s.last: // it is being stored, and acknowledged then
		case gap:
			s.held, s.last, s.upTo = in, max(s.last, floor), meta.Sequence.Stream-1
			if len(out) > 0 {
				return out, nil
			}
			return s.reread(ctx)
		default:
			m, err := s.take(in)
			if err != nil {
				return nil, err
			}
			out, size = append(out, m), size+m.Size()
		}
	}
	return out, nil
}

// floor returns up to where all messages are acknowledged. The consumer must be the one that the source knows.
func (s *source) floor(ctx context.Context) (uint64, error) {
	at, err := s.consumer.Info(ctx)
	if err == nil && !at.Created.Equal(s.made) {
		err = fmt.Errorf("consumer %s of stream %s was made anew", at.Name, at.Stream)
	}
	if err != nil {
		return 0, err
	}
	return at.AckFloor.Stream, nil
}

// next returns the next message that the server has assigned. Without wait, it is nil if none is here already.
func (s *source) next(ctx context.Context, wait bool) (jetstream.Msg, error) {
	for {
		if s.batch == nil {
			if !wait {
				return nil, nil
			}
			var err error
			if s.batch, err = s.consumer.Fetch(broker.MaxMessages, jetstream.FetchMaxWait(idle), jetstream.FetchMaxBytes(s.bytes())); err != nil {
				return nil, err
			}
		}
		messages := s.batch.Messages()
		if !wait {
			select {
			case m := <-messages:
				if m == nil {
					return nil, s.ended()
				}
				return m, nil
			default:
				return nil, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case m := <-messages:
			if m != nil {
				return m, nil
			}
			return nil, s.ended()
		}
	}
}

// ended forgets a batch that has ended, and returns why it did if that is an error.
func (s *source) ended() error {
	err := s.batch.Error()
	s.batch = nil
	if err == nil && !s.nc.IsConnected() {
		return nats.ErrConnectionClosed
	}
	return err
}

// bytes is what one batch may have. The server sends no message that is larger than what was asked for.
func (s *source) bytes() int { return max(broker.MaxBytes, s.Most()) }

// take hands out a message.
func (s *source) take(in jetstream.Msg) (broker.Message, error) {
	meta, err := in.Metadata()
	if err != nil {
		return broker.Message{}, err
	}
	s.last = meta.Sequence.Stream
	s.upTo = max(s.upTo, s.last)
	m := s.message(meta.Sequence.Stream, in.Subject(), in.Headers(), in.Data(), meta.Timestamp)
	m.Receipt = receipt{meta.Sequence.Stream, in}
	return m, nil
}

// A receipt acknowledges a message. One that was read from the stream has none: the server assigns it once more.
type receipt struct {
	at      uint64
	message jetstream.Msg
}

func (s *source) message(at uint64, subject string, h nats.Header, body []byte, sent time.Time) broker.Message {
	headers := make(map[string]any, len(h))
	for name, values := range h {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return broker.Message{
		ID:      fmt.Sprintf("%s/%d-%x", s.stream.CachedInfo().Config.Name, at, sent.UnixNano()),
		Subject: subject, Headers: headers, Body: body, Time: sent,
	}
}

// reread reads messages from the stream that another reader has or had.
func (s *source) reread(ctx context.Context) (out []broker.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	subject := s.filter
	if subject == "" {
		subject = ">"
	}
	for size := 0; s.last < s.upTo && len(out) < broker.MaxMessages && size < broker.MaxBytes; {
		raw, err := s.stream.GetMsg(ctx, s.last+1, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > s.upTo {
			s.last = s.upTo
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read message %d of the stream: %w", s.last+1, err)
		}
		m := s.message(raw.Sequence, raw.Subject, raw.Header, raw.Data, raw.Time)
		m.Receipt = receipt{at: raw.Sequence}
		s.last = raw.Sequence
		out, size = append(out, m), size+m.Size()
	}
	return out, nil
}

// Done implements [broker.Source].
func (s *source) Done(_ context.Context, messages []broker.Message) error {
	for _, m := range messages {
		r := m.Receipt.(receipt)
		if r.message != nil {
			if err := r.message.Ack(); err != nil {
				return err
			}
		}
		s.durable.Store(r.at)
	}
	return nil
}

// Lag implements [broker.Source].
func (s *source) Lag(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	at, err := s.consumer.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(at.NumPending) + int64(at.NumAckPending), nil
}

// Origin implements [broker.Source].
func (s *source) Origin() string {
	return strconv.FormatInt(s.stream.CachedInfo().Created.UnixNano(), 16)
}

// Most implements [broker.Source].
func (s *source) Most() int { return int(s.nc.MaxPayload()) + 64<<10 }

// Close implements [broker.Source].
func (s *source) Close() { s.nc.Close() }
