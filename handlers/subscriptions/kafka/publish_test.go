package kafka_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"procaas/dsl/expr"
	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/kafka"
	"procaas/handlers/subscriptions/language"
)

func dial(ctx context.Context, auth *language.Login, servers ...string) (broker.Publisher, error) {
	k := language.Broker{ID: "hub", Kind: "kafka", Servers: servers, Auth: auth}
	return kafka.Dial(ctx, &broker.Connection{
		Connection: k.Connection(), Client: "test", Dial: (&net.Dialer{}).DialContext,
		Secret: func(name string) (string, error) { return name, nil },
	})
}

// TestMessagesOfAKeyKeepTheirOrder sends messages of two keys. Each key has one partition, in which its messages keep their order.
func TestMessagesOfAKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := dial(r.ctx, nil, r.sub.Servers...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	last := map[string]map[string]any{}
	for n := range 20 {
		key := []string{"a", "b"}[n%2]
		out, err := p.Publish(r.ctx, &broker.Outgoing{
			ID: "1", To: "orders", Key: key, Headers: map[string]string{"Idempotency-Key": "1"}, Body: []byte(`{}`),
		})
		if err != nil || out.Duplicate {
			t.Fatal(out, err)
		}
		if at := last[key]; at != nil && (at["partition"] != out.Place["partition"] || at["offset"].(int) >= out.Place["offset"].(int)) {
			t.Errorf("want %s behind %v, have %v", key, at, out.Place)
		}
		last[key] = out.Place
	}
	s := r.open()
	defer s.Close()
	got, err := s.Fetch(r.ctx)
	if err != nil || len(got) == 0 || got[0].Key == "" || got[0].Headers["idempotency-key"] != "1" {
		t.Errorf("want messages with their key and header, have %+v (%v)", got, err)
	}
}

// TestWhatKafkaDoesNotTake has the errors of messages and of connections, and whether a retry may help.
func TestWhatKafkaDoesNotTake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := dial(r.ctx, nil, r.sub.Servers...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.Publish(r.ctx, &broker.Outgoing{ID: "1", To: "orders", Body: make([]byte, 2<<20)})
	if !model.IsPermanent(err) || p.Broken() {
		t.Errorf("want no retry of a message that is too large, have %v", err)
	}
	short, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()
	if _, err = p.Publish(short, &broker.Outgoing{ID: "1", To: "nowhere"}); !errors.Is(err, context.DeadlineExceeded) || !p.Broken() {
		t.Errorf("want an end of a call that has no time left, have %v", err)
	}
	if _, err = dial(r.ctx, nil, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || model.ClassOf(err) != "connection" {
		t.Errorf("want an error that names the address, have %v", err)
	}
	guarded, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "procaas", "right"))
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()
	for _, password := range []string{"right", "wrong"} {
		auth := &language.Login{Username: "procaas", Password: &expr.Value{Kind: expr.ValueSecret, Secret: password}, Mechanism: "plain"}
		p, err := dial(r.ctx, auth, guarded.ListenAddrs()...)
		if (err == nil) != (password == "right") {
			t.Errorf("with the %s password: have %v", password, err)
		}
		if p != nil {
			p.Close()
		}
	}
}
