package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/rabbitmq"
)

var server *brokertest.Rabbit

func TestMain(m *testing.M) {
	var err error
	if server, err = brokertest.StartRabbit(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

// A rig is a queue.
type rig struct {
	t       *testing.T
	ctx     context.Context
	kind    string
	sub     language.Subscription
	secrets map[string]string
	sender  *amqp.Channel

	mu    sync.Mutex // guards conns
	conns []net.Conn // of readers
}

func newRig(t *testing.T, kind string) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	conn, err := amqp.Dial(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &rig{t: t, ctx: ctx, kind: kind, sub: language.Subscription{ID: "orders", Broker: "rabbitmq", Servers: []string{server.URL}, Queue: t.Name(), Prefetch: 128}}
	if r.sender, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if _, err = r.sender.QueueDeclare(r.sub.Queue, true, false, false, false, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": kind == "quorum"}); err != nil {
		t.Fatal(err)
	}
	return r
}

// send sends messages whose bodies begin with their numbers.
func (r *rig) send(from, to, size int) {
	r.t.Helper()
	for n := from; n < to; n++ {
		m := amqp.Publishing{MessageId: fmt.Sprint("m-", n), Type: "paid", Headers: amqp.Table{"Tries": int32(n)}, Body: []byte(strconv.Itoa(n))}
		m.Body = append(m.Body, strings.Repeat(" ", size)...)
		if err := r.sender.PublishWithContext(r.ctx, "", r.sub.Queue, false, false, m); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) options() broker.Options {
	o := brokertest.Options(&r.sub, r.secrets)
	dial := o.Connection.Dial
	o.Connection.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.conns = append(r.conns, c)
		return c, err
	}
	return o
}

func (r *rig) open() broker.Source {
	r.t.Helper()
	s, err := rabbitmq.Open(r.ctx, r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

// read reads messages, which must come in the order of their numbers.
func (r *rig) read(s broker.Source, from, to int) (got []broker.Message) {
	r.t.Helper()
	for n := from; n < to; {
		more, err := s.Fetch(r.ctx)
		if err != nil {
			r.t.Fatalf("after message %d: %v", n, err)
		}
		for _, m := range more {
			if have := strings.TrimSpace(string(m.Body)); have != strconv.Itoa(n) {
				r.t.Fatalf("want message %d next, have %s", n, have)
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

// TestTheOrderSurvivesAReader cuts the connection of a reader that has messages. They come again first, and nobody else reads before that.
func TestTheOrderSurvivesAReader(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			theOrderSurvives(newRig(t, kind))
		})
	}
}

// theOrderSurvives reads a queue with two readers, one after the other.
func theOrderSurvives(r *rig) {
	t := r.t
	r.send(0, 2000, 10)
	r.send(2000, 2020, 400<<10)
	first := r.open()
	got := r.read(first, 0, 100)
	if m := got[7]; m.Subject != r.sub.Queue || m.Headers["message-id"] != "m-7" || m.Headers["type"] != "paid" || m.Headers["tries"] != "7" {
		t.Errorf("want the properties and headers of the message, have %+v", m)
	}
	r.done(first, got)
	lost := r.read(first, len(got), len(got)+100) // the server sends a second batch without an acknowledgement
	r.done(first, lost[:10])
	var second broker.Source
	if r.kind == "quorum" {
		second = r.open() // the server lets it wait for the first one
	} else if _, err := rabbitmq.Open(r.ctx, r.options()); err == nil || !strings.Contains(err.Error(), "exclusive") {
		t.Fatalf("want that a second reader is refused, have %v", err)
	}
	r.mu.Lock()
	r.conns[0].Close()
	r.mu.Unlock()
	for {
		if _, err := first.Fetch(r.ctx); err != nil { // after what it had
			break
		}
	}
	if second == nil {
		patience.Until(t, "the server to notice", func() (ok bool) {
			var err error
			second, err = rabbitmq.Open(r.ctx, r.options())
			return err == nil
		})
		t.Cleanup(second.Close)
	}
	for n := len(got) + 10; n < 2020; {
		more := r.read(second, n, n+1) // a whole batch
		r.done(second, more)
		n += len(more)
	}
	patience.Until(t, "the acknowledgements", func() bool {
		left, err := second.Lag(r.ctx)
		return err == nil && left == 0
	})
}

// TestLargeMessagesAreBounded reads messages of 1 MiB. The server sends few of them ahead.
func TestLargeMessagesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, "classic")
	r.send(0, 40, 1<<20)
	r.sub.Prefetch = 8
	s := r.open()
	for n := 0; n < 40; {
		more := r.read(s, n, n+1)
		if len(more) > 3 {
			t.Fatalf("want at most 2 MiB and a message in a batch, have %d messages", len(more))
		}
		n += len(more)
		q, err := r.sender.QueueDeclarePassive(r.sub.Queue, true, false, false, false, nil)
		if ahead := 40 - n - q.Messages; err != nil || ahead > 8 {
			t.Fatalf("want at most 8 messages ahead, have %d (%v)", ahead, err)
		}
		r.done(s, more)
	}
}

// TestAQueueThatGoesAway deletes the queue under its reader, and names one that is not there.
func TestAQueueThatGoesAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, "classic")
	r.send(0, 1, 10)
	s := r.open()
	r.done(s, r.read(s, 0, 1))
	if _, err := r.sender.QueueDelete(r.sub.Queue, false, false, false); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Fetch(r.ctx); err == nil {
		t.Errorf("want an error for the deleted queue, have %d messages", len(got))
	}
	r.refused("no queue")
	r.sub.Servers = []string{"amqp://127.0.0.1:1"}
	r.refused("127.0.0.1:1")
}

// refused wants an error that says why.
func (r *rig) refused(why string) {
	r.t.Helper()
	s, err := rabbitmq.Open(r.ctx, r.options())
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		r.t.Errorf("want an error with %q, have %v", why, err)
	}
}

// TestLoginsAndEncryption connects with passwords, and over TLS, which a proxy before the server speaks.
func TestLoginsAndEncryption(t *testing.T) {
	t.Parallel()
	r := newRig(t, "classic")
	config, secrets := brokertest.Encryption(t)
	r.secrets = secrets
	secrets["right"], secrets["wrong"] = "guest", "guess"
	secret := brokertest.Secret
	r.sub.Auth = &language.Login{Username: "guest", Password: secret("right")}
	r.sub.Servers = []string{"amqp://127.0.0.1:1", server.URL} // the first one that answers
	r.open().Close()
	r.sub.Auth.Password = secret("wrong")
	r.refused("username or password not allowed")
	r.sub.Auth.Password = secret("right")
	r.sub.Servers = []string{"amqp://" + encrypted(t, config)}
	r.sub.TLS = &language.Encryption{CA: secret("ca"), Certificate: secret("certificate"), Key: secret("key")}
	r.send(0, 10, 10)
	s := r.open()
	r.done(s, r.read(s, 0, 10))
	r.sub.TLS = &language.Encryption{Certificate: secret("certificate"), Key: secret("key")}
	r.refused("unknown authority")
	r.sub.TLS = &language.Encryption{CA: secret("ca")}
	r.refused("") // the server may tell why, or be gone before
}

// encrypted listens with TLS before the server.
func encrypted(t *testing.T, config *tls.Config) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "amqp://"))
			if err != nil {
				from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					way[0].Close()
					way[1].Close()
				}()
			}
		}
	}()
	return l.Addr().String()
}
