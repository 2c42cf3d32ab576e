package jetstream_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/jetstream"
	"procaas/handlers/subscriptions/language"
)

// A rig is a stream with readers.
type rig struct {
	t    *testing.T
	ctx  context.Context
	nats *brokertest.NATS
	js   natsjs.JetStream
	sub  language.Subscription

	secrets map[string]string
	known   string // what the store knows of the stream
}

func newRig(t *testing.T, config natsjs.StreamConfig) *rig {
	t.Helper()
	return rigAt(t, brokertest.StartNATS(t), config)
}

func rigAt(t *testing.T, server *brokertest.NATS, config natsjs.StreamConfig) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, nats: server}
	r.js = r.nats.JetStream()
	config.Name, config.Subjects = "ORDERS", []string{"orders.>"}
	if _, err := r.js.CreateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	r.sub = language.Subscription{ID: "orders", Broker: "nats", Servers: []string{r.nats.URL()}, Stream: "ORDERS", Start: "first"}
	return r
}

// send sends messages whose bodies are their numbers.
func (r *rig) send(subject string, from, to int) {
	r.t.Helper()
	for n := from; n < to; n++ {
		if _, err := r.js.Publish(r.ctx, subject, []byte(strconv.Itoa(n))); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) options() broker.Options {
	o := brokertest.Options(&r.sub, r.secrets)
	o.Known = r.known
	return o
}

// restart starts the server, and connects to it.
func (r *rig) restart() {
	r.t.Helper()
	r.nats.Start()
	r.js = r.nats.JetStream()
}

func (r *rig) open() broker.Source {
	r.t.Helper()
	s, err := jetstream.Open(r.ctx, r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

// read reads messages from a source, which must come in the order of their numbers.
func (r *rig) read(s broker.Source, from, to int) (got []broker.Message) {
	r.t.Helper()
	for n := from; n < to; {
		more, err := s.Fetch(r.ctx)
		if err != nil {
			r.t.Fatalf("after message %d: %v", n, err)
		}
		for _, m := range more {
			if string(m.Body) != strconv.Itoa(n) {
				r.t.Fatalf("want message %d next, have %s as %s", n, m.Body, m.ID)
			}
			n++
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

func (r *rig) lag(s broker.Source) int64 {
	r.t.Helper()
	n, err := s.Lag(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// settled waits until the server knows of the acknowledgements, so that so many messages are left.
func (r *rig) settled(s broker.Source, left int64) {
	r.t.Helper()
	patience.Until(r.t, "the acknowledgements", func() bool { return r.lag(s) == left })
}

// TestMessagesOfADeadReaderComeFirst lets a reader die with messages that it has not acknowledged. The next reader gets them before any
// later one, at once, although the server has assigned them to the dead one.
func TestMessagesOfADeadReaderComeFirst(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]natsjs.StreamConfig{
		"limits": {}, "work queue": {Retention: natsjs.WorkQueuePolicy}, "interest": {Retention: natsjs.InterestPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, config)
			first := r.open() // with an interest, messages are kept from now on
			r.send("orders.eu", 0, 1000)
			got := r.read(first, 0, 800)
			r.done(first, got[:300])
			r.settled(first, 700)
			first.Close()
			second := r.open()
			again := r.read(second, 300, 1000)
			for i, m := range got[300:] {
				if again[i].ID != m.ID {
					t.Fatalf("want %s again with its place, have %s", m.ID, again[i].ID)
				}
			}
			r.done(second, again)
			for r.lag(second) > 0 { // the server sends those of the dead reader once more, to be acknowledged
				if _, err := second.Fetch(r.ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestTwoReadersAtOnceKeepTheOrder lets two readers take turns at a stream. Each gets all messages that are not acknowledged in their
// order, whatever the server has assigned to the other.
func TestTwoReadersAtOnceKeepTheOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	a, b := r.open(), r.open()
	r.send("orders.eu", 0, 10)
	r.done(a, r.read(a, 0, 10))
	r.settled(a, 0)
	r.send("orders.eu", 10, 20) // the server assigns them to one of them, which it does not know
	left := r.read(b, 10, 20)
	r.send("orders.eu", 20, 30)
	r.done(a, r.read(a, 10, 30))
	r.done(b, left)
}

// TestAFilterAndNewMessagesOnly reads what matches the filter, from the moment on at which the group is new.
func TestAFilterAndNewMessagesOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	r.sub.Filter, r.sub.Start = "orders.eu", "new"
	r.send("orders.eu", 90, 95)
	s := r.open()
	r.send("orders.us", 70, 75)
	r.send("orders.eu", 0, 5)
	got := r.read(s, 0, 5)
	s.Close()
	r.send("orders.us", 70, 75)
	r.send("orders.eu", 5, 10)
	again := r.open()
	r.done(again, r.read(again, 0, 10))
	if m := got[0]; m.Subject != "orders.eu" || m.Time.IsZero() {
		t.Errorf("want the subject and the time of the message, have %+v", m)
	}
}

// TestAStreamMadeAnewHasOtherPlaces deletes a stream and makes it again. Its messages have the same numbers, and are others.
func TestAStreamMadeAnewHasOtherPlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	r.send("orders.eu", 0, 1)
	s := r.open()
	before := r.read(s, 0, 1)
	if err := r.js.DeleteStream(r.ctx, "ORDERS"); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.Fetch(r.ctx); err != nil {
			break // it must not go on as if nothing had happened
		}
	}
	if _, err := r.js.CreateStream(r.ctx, natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	r.send("orders.eu", 0, 1)
	if after := r.read(r.open(), 0, 1); after[0].ID == before[0].ID {
		t.Errorf("want other places in the new stream, have %s in both", after[0].ID)
	}
}

// TestLargeMessagesAreBounded reads messages as large as the server allows: a batch has at most a few of them.
func TestLargeMessagesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	s := r.open()
	large := make([]byte, s.Most()-(64<<10))
	for range 6 {
		if _, err := r.js.Publish(r.ctx, "orders.eu", large); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < 6; {
		more, err := s.Fetch(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, m := range more {
			size += len(m.Body)
		}
		if size > broker.MaxBytes+len(large) {
			t.Fatalf("want at most %d bytes in a batch, have %d", broker.MaxBytes, size)
		}
		got += len(more)
		r.done(s, more)
	}
}

// TestAServerThatLosesMessagesReusesTheirNumbers restores what a server had stored earlier. Messages that get the numbers of lost ones are
// other messages.
func TestAServerThatLosesMessagesReusesTheirNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	r.send("orders.eu", 0, 10)
	s := r.open()
	r.done(s, r.read(s, 0, 10))
	r.settled(s, 0)
	s.Close()
	r.nats.Stop()
	kept := r.nats.Keep()
	r.restart()
	r.send("orders.eu", 10, 20)
	s = r.open()
	lost := r.read(s, 10, 20)
	r.done(s, lost)
	s.Close()
	r.nats.Stop()
	r.nats.Restore(kept)
	r.restart()
	r.send("orders.eu", 10, 20)
	for i, m := range r.read(r.open(), 10, 20) {
		if m.ID == lost[i].ID {
			t.Errorf("want another id for the message after the loss, have %s again", m.ID)
		}
	}
}

// TestAConsumerMadeAnewIsNotTheOldOne deletes a stream under a reader, makes it again, and lets another reader make the consumer again. The
// first one must not take the new messages for those that it has read.
func TestAConsumerMadeAnewIsNotTheOldOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	r.send("orders.eu", 0, broker.MaxMessages)
	a := r.open()
	r.done(a, r.read(a, 0, broker.MaxMessages)) // it waits for no more
	r.settled(a, 0)
	if err := r.js.DeleteStream(r.ctx, "ORDERS"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.js.CreateStream(r.ctx, natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	b := r.open()
	r.send("orders.eu", 0, 10)
	for {
		got, err := a.Fetch(r.ctx)
		if err == nil && len(got) == 0 {
			continue // what it had asked for before has ended
		}
		if err == nil || !strings.Contains(err.Error(), "made anew") {
			t.Errorf("want an error of the reader that knows the old consumer, have %d messages (%v)", len(got), err)
		}
		break
	}
	a.Close()
	r.done(b, r.read(b, 0, 10))
}

// TestWhatIsReadIsReadOnAfterTheServerWasAway stops the server under a reader, with messages that are not acknowledged.
func TestWhatIsReadIsReadOnAfterTheServerWasAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	r.send("orders.eu", 0, 100)
	s := r.open()
	got := r.read(s, 0, 100)
	r.done(s, got[:20])
	r.settled(s, 80)
	failed := make(chan error)
	go func() {
		_, err := s.Fetch(r.ctx)
		failed <- err
	}()
	r.nats.Stop()
	if err := <-failed; err == nil {
		t.Error("want an error when the server goes away")
	}
	s.Close()
	r.restart()
	s = r.open()
	r.done(s, r.read(s, 20, 100))
}

// TestAForgottenGroup deletes what the server knows of the reader. The next one reads nothing, until the stream is made anew, too.
func TestAForgottenGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	r.sub.Start = "new"
	s := r.open()
	r.send("orders.eu", 0, 5)
	r.done(s, r.read(s, 0, 5))
	r.known = s.Origin()
	s.Close()
	if err := r.js.DeleteConsumer(r.ctx, "ORDERS", "procaas-orders"); err != nil {
		t.Fatal(err)
	}
	r.send("orders.eu", 0, 5) // nobody knows that these were not read
	if _, err := jetstream.Open(r.ctx, r.options()); err == nil || !strings.Contains(err.Error(), "group procaas-orders") {
		t.Fatalf("want an error that names the group, have %v", err)
	}
	if err := r.js.DeleteStream(r.ctx, "ORDERS"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.js.CreateStream(r.ctx, natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	r.send("orders.eu", 0, 5)
	s = r.open()
	r.read(s, 0, 5)
}

// TestNobodyListens returns an error that says which address did not answer.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	sub := &language.Subscription{ID: "orders", Servers: []string{"nats://127.0.0.1:1"}}
	_, err := jetstream.Open(t.Context(), brokertest.Options(sub, nil))
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("want an error that names the address, have %v", err)
	}
}
