// Package kafka reads topics of Kafka for subscriptions.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"procaas/handlers/subscriptions/broker"
)

const (
	// session is after how long the group gives the partitions of a dead node to others. Servers allow no less by default.
	session   = 6 * time.Second
	heartbeat = 2 * time.Second
	rebalance = 10 * time.Second

	idle    = 2 * time.Second // how long a Fetch waits
	timeout = 10 * time.Second

	unpacked = 64 << 20 // the most bytes of a compressed batch when it is decompressed
)

// A source reads a topic as a member of a consumer group, which gives each partition to one node. A node that has lost a partition may
// still store what it had fetched, which the next owner reads again from the last acknowledged message. But it acknowledges nothing.
type source struct {
	client       *kgo.Client
	admin        *kadm.Client
	topic, group string
	origin       string // the id of the topic; brokers before Kafka 3.1 have none
	log          *slog.Logger

	mu     sync.Mutex    // guards epochs
	epochs map[int32]int // how often a partition was taken from this node
}

// A receipt is the place after a message, and in which epoch of its partition this node has fetched it.
type receipt struct {
	partition int32
	next      kgo.EpochOffset
	epoch     int
}

// Open joins the consumer group.
func Open(ctx context.Context, o broker.Options) (broker.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sub := o.Subscription
	s := &source{topic: sub.Topic, group: sub.GroupName(), log: o.Log.With("subscription", sub.ID), epochs: map[int32]int{}}
	options, err := Connect(o.Connection)
	if err != nil {
		return nil, err
	}
	member := []kgo.Opt{
		kgo.ConsumerGroup(s.group), kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsRevoked(s.lost), kgo.OnPartitionsLost(s.lost),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(heartbeat), kgo.RebalanceTimeout(rebalance),
		kgo.FetchMaxBytes(broker.MaxBytes), kgo.FetchMaxPartitionBytes(broker.MaxBytes), kgo.MaxConcurrentFetches(1),
		kgo.MaxDecompressBatchBytes(unpacked), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
	outside, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	s.admin = kadm.NewClient(outside)
	err = s.begin(ctx, &o) // before it is a member: only then may it say where a group begins
	if err == nil {
		s.client, err = kgo.NewClient(append(options, member...)...)
	}
	if err != nil {
		outside.Close()
		return nil, err
	}
	return s, nil
}

// begin finds the topic, and lets a group that the broker does not know begin. That is acknowledged at once: a node that died before its
// first acknowledgement must not skip any message, and a group without any would look like one that the broker has forgotten.
func (s *source) begin(ctx context.Context, o *broker.Options) error {
	topics, err := s.admin.ListTopics(ctx, s.topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return fmt.Errorf("topic %s: %w", s.topic, err)
	}
	id := topics[s.topic].ID
	s.origin = fmt.Sprintf("%x", id[:6])
	known, err := s.admin.FetchOffsets(ctx, s.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return fmt.Errorf("group %s: %w", s.group, err)
	}
	isOther := o.Known != "" && o.Known != s.origin // offsets of a topic that is gone say nothing
	if len(known.Offsets()[s.topic]) > 0 && !isOther {
		return nil
	}
	fresh, err := o.Begin(s.origin)
	if err != nil {
		return err
	}
	list := s.admin.ListStartOffsets
	if fresh {
		list = s.admin.ListEndOffsets
	}
	from, err := list(ctx, s.topic)
	if err != nil {
		return fmt.Errorf("topic %s: %w", s.topic, err)
	}
	err = s.admin.CommitAllOffsets(ctx, s.group, from.Offsets())
	if err != nil && !errors.Is(err, kerr.UnknownMemberID) { // another node has just let it begin, and is a member
		return fmt.Errorf("group %s: %w", s.group, err)
	}
	return nil
}

func (s *source) ends(ctx context.Context) (kadm.ListedOffsets, error) {
	ends, err := s.admin.ListEndOffsets(ctx, s.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", s.topic, err)
	}
	return ends, nil
}

// lost notes that partitions were taken from this node.
func (s *source) lost(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range all[s.topic] {
		s.epochs[p]++
	}
}

func (s *source) epoch(partition int32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epochs[partition]
}

// Fetch implements [broker.Source].
func (s *source) Fetch(ctx context.Context) (out []broker.Message, err error) {
	wait, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	fetches := s.client.PollRecords(wait, broker.MaxMessages)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	fetches.EachError(func(_ string, _ int32, e error) {
		if _, lost := errors.AsType[*kgo.ErrDataLoss](e); lost {
			s.log.Warn("the broker has lost messages, and the subscription reads on where its log goes on", "error", e)
		} else if !errors.Is(e, context.DeadlineExceeded) {
			err = errors.Join(err, e)
		}
	})
	if err != nil {
		return nil, err
	}
	fetches.EachTopic(func(t kgo.FetchTopic) {
		t.EachRecord(func(r *kgo.Record) { out = append(out, s.message(t.TopicID, r)) })
	})
	return out, nil
}

// message makes a message of a record. Its offset is used again in a topic that is made anew, which has another id, and after a broker has
// lost the end of its log, which another leader continues. Its time tells them apart if brokers keep neither. What says that a key has been
// deleted has no body, which is null.
func (s *source) message(topic [16]byte, r *kgo.Record) broker.Message {
	headers := make(map[string]any, len(r.Headers))
	for _, h := range r.Headers {
		headers[strings.ToLower(h.Key)] = string(h.Value)
	}
	body := r.Value
	if body == nil {
		body = []byte("null")
	}
	return broker.Message{
		ID:      fmt.Sprintf("%s/%x/%d/%d-%x-%x", r.Topic, topic[:6], r.Partition, r.Offset, r.LeaderEpoch, r.Timestamp.UnixMilli()),
		Subject: r.Topic, Key: string(r.Key), Headers: headers, Body: body, Time: r.Timestamp,
		Receipt: receipt{r.Partition, kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}, s.epoch(r.Partition)},
	}
}

// Done implements [broker.Source].
func (s *source) Done(ctx context.Context, messages []broker.Message) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	next := map[int32]kgo.EpochOffset{}
	for _, m := range messages {
		r := m.Receipt.(receipt)
		if r.epoch == s.epoch(r.partition) {
			next[r.partition] = r.next
		}
	}
	if len(next) == 0 {
		return nil
	}
	var failed error
	s.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.topic: next},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, reply *kmsg.OffsetCommitResponse, err error) {
			failed = err
			if err != nil {
				return
			}
			for _, t := range reply.Topics {
				for _, p := range t.Partitions {
					failed = errors.Join(failed, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		})
	for _, passing := range []error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch} {
		if errors.Is(failed, passing) {
			return nil // the group moves partitions; what is not acknowledged comes again, as a duplicate
		}
	}
	return failed
}

// Lag implements [broker.Source].
func (s *source) Lag(ctx context.Context) (lag int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ends, err := s.ends(ctx)
	if err != nil {
		return 0, err
	}
	starts, err := s.admin.ListStartOffsets(ctx, s.topic)
	if err != nil {
		return 0, err
	}
	known, err := s.admin.FetchOffsets(ctx, s.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		from := int64(0)
		if start, ok := starts.Lookup(s.topic, end.Partition); ok {
			from = start.Offset
		}
		if at, ok := known.Lookup(s.topic, end.Partition); ok {
			from = max(from, at.At)
		}
		lag += max(0, end.Offset-from)
	})
	return lag, nil
}

// Origin implements [broker.Source].
func (s *source) Origin() string { return s.origin }

// Most implements [broker.Source]. What the library has fetched and a Fetch has not returned counts, too.
func (s *source) Most() int { return 2 * broker.MaxBytes }

// Close implements [broker.Source].
func (s *source) Close() {
	s.client.CloseAllowingRebalance()
	s.admin.Close()
}
