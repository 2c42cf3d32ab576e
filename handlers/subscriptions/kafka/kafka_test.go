package kafka_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/kafka"
	"procaas/handlers/subscriptions/language"
)

const partitions = 4

// A rig is a topic with members of a group.
type rig struct {
	t      *testing.T
	ctx    context.Context
	sub    language.Subscription
	client *kgo.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &rig{t: t, ctx: ctx, client: client, sub: language.Subscription{
		ID: "orders", Broker: "kafka", Servers: c.ListenAddrs(), Topic: "orders", Start: "first",
	}}
}

// send sends numbered messages, each to the partition of its number.
func (r *rig) send(from, to int) {
	r.t.Helper()
	for n := from; n < to; n++ {
		m := &kgo.Record{
			Topic: "orders", Partition: int32(n % partitions), Key: []byte("k-" + strconv.Itoa(n%partitions)), Value: []byte(strconv.Itoa(n)),
			Headers: []kgo.RecordHeader{{Key: "Kind", Value: []byte("test")}},
		}
		if err := r.client.ProduceSync(r.ctx, m).FirstErr(); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) open() broker.Source {
	r.t.Helper()
	s, err := kafka.Open(r.ctx, brokertest.Options(&r.sub, nil))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// read reads the messages from a number on. Those of a partition must come in their order.
func (r *rig) read(s broker.Source, from, to int) (got []broker.Message) {
	r.t.Helper()
	next := map[int]int{}
	for n := from; n < from+partitions; n++ {
		next[n%partitions] = n
	}
	for len(got) < to-from {
		more, err := s.Fetch(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, m := range more {
			n, _ := strconv.Atoi(string(m.Body))
			if n != next[n%partitions] {
				r.t.Fatalf("want %d next in its partition, have %d as %s", next[n%partitions], n, m.ID)
			}
			next[n%partitions] += partitions
		}
		got = append(got, more...)
	}
	return got
}

func (r *rig) done(s broker.Source, messages []broker.Message) {
	r.t.Helper()
	if err := s.Done(r.ctx, messages); err != nil {
		r.t.Fatal(err)
	}
}

// TestWhatIsNotAcknowledgedComesAgain lets a member leave with messages that it has not acknowledged.
func TestWhatIsNotAcknowledgedComesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.send(0, 40)
	first := r.open()
	got := r.read(first, 0, 40)
	if m := got[0]; m.Subject != "orders" || m.Key == "" || m.Headers["kind"] != "test" {
		t.Errorf("want the topic, the key and the headers, have %+v", m)
	}
	lag := func(s broker.Source, want int64) {
		t.Helper()
		if n, err := s.Lag(r.ctx); err != nil || n != want {
			t.Errorf("want a lag of %d, have %d (%v)", want, n, err)
		}
	}
	lag(first, 40)
	var early []broker.Message // the first five of each partition
	for _, m := range got {
		if n, _ := strconv.Atoi(string(m.Body)); n < 20 {
			early = append(early, m)
		}
	}
	r.done(first, early)
	lag(first, 20)
	first.Close()
	second := r.open()
	defer second.Close()
	again := r.read(second, 20, 40)
	known := map[string]string{}
	for _, m := range got {
		known[m.ID] = string(m.Body)
	}
	for _, m := range again {
		if known[m.ID] != string(m.Body) {
			t.Errorf("want %s at the same place as before, have %s", m.Body, m.ID)
		}
	}
	r.done(second, again)
	lag(second, 0)
}

// TestANewGroupBeginsAtTheEnd reads only what comes after the group was made, also if the first member dies before it acknowledges.
func TestANewGroupBeginsAtTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sub.Start = "new"
	r.send(0, 8)
	r.open().Close()
	r.send(8, 16)
	s := r.open()
	defer s.Close()
	r.done(s, r.read(s, 8, 16))
}

// TestAMemberThatLostItsPartitionsAcknowledgesNothing lets a second member join. The first one no longer acknowledges what the second reads.
func TestAMemberThatLostItsPartitionsAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.send(0, 40)
	first := r.open()
	got := r.read(first, 0, 40)
	second := r.open()
	defer second.Close()
	seen := map[string]bool{}
	for len(seen) < 20 { // half of the partitions
		more, err := second.Fetch(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range more {
			seen[m.ID] = true
		}
		if _, err := first.Fetch(r.ctx); err != nil { // it takes part in the group
			t.Fatal(err)
		}
	}
	r.done(first, got)
	n, err := first.Lag(r.ctx)
	if err != nil || n != 20 {
		t.Errorf("want 20 messages of the second member left, have %d (%v)", n, err)
	}
	first.Close()
}

// TestNobodyListens returns an error instead of waiting.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	sub := &language.Subscription{ID: "orders", Servers: []string{"127.0.0.1:1"}, Topic: "orders"}
	if _, err := kafka.Open(t.Context(), brokertest.Options(sub, nil)); err == nil {
		t.Error(fmt.Errorf("want an error"))
	}
}
