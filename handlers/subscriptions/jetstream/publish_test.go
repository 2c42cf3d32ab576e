package jetstream_test

import (
	"net"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/jetstream"
	"procaas/handlers/subscriptions/language"
)

func (r *rig) dial() broker.Publisher {
	r.t.Helper()
	k := language.Broker{ID: "hub", Kind: "nats", Servers: []string{r.nats.URL()}}
	p, err := jetstream.Dial(r.ctx, &broker.Connection{Connection: k.Connection(), Client: "test", Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// TestAMessageIsStoredOnce sends a message twice, as two attempts do. The subscription reads it once, with all that it has.
func TestAMessageIsStoredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{})
	p := r.dial()
	m := &broker.Outgoing{ID: "5e1f", To: "orders.eu", Key: "o-1", Headers: map[string]string{"Kind": "test"}, Body: []byte(`{"a":1}`)}
	for _, again := range []bool{false, true} {
		out, err := p.Publish(r.ctx, m)
		if err != nil || out.Duplicate != again || out.Place["stream"] != "ORDERS" || out.Place["sequence"] != 1 {
			t.Fatalf("want message 1 of ORDERS, a duplicate: %v, have %+v (%v)", again, out, err)
		}
	}
	m.ID = "5e20"
	if out, err := p.Publish(r.ctx, m); err != nil || out.Place["sequence"] != 2 {
		t.Fatalf("want another call to be another message, have %+v (%v)", out, err)
	}
	s := r.open()
	got, err := s.Fetch(r.ctx)
	if err != nil || len(got) == 0 || got[0].Subject != "orders.eu" || got[0].Headers["kind"] != "test" || string(got[0].Body) != `{"a":1}` {
		t.Errorf("want the message with its header, have %+v (%v)", got, err)
	}
}

// TestWhatJetStreamDoesNotTake has the errors of messages, and whether a retry may help.
func TestWhatJetStreamDoesNotTake(t *testing.T) {
	t.Parallel()
	r := newRig(t, natsjs.StreamConfig{MaxMsgSize: 1000})
	p := r.dial()
	for _, x := range []struct {
		subject string
		size    int
		class   string
		retried bool
		text    string
	}{
		{"orders.>", 1, "", false, "without blanks and wildcards"},
		{"orders.a b", 1, "", false, "without blanks and wildcards"},
		{"orders.", 1, "", false, "a dot between them"},
		{"$JS.API.STREAM.DELETE.ORDERS", 1, "", false, "belongs to the server"},
		{"elsewhere", 1, "connection", true, "no stream has answered"},
		{"orders.large", 2000, "400", true, "message size exceeds"},
		{"orders.huge", 2 << 20, "", false, "maximum payload"},
	} {
		_, err := p.Publish(r.ctx, &broker.Outgoing{ID: "1", To: x.subject, Body: make([]byte, x.size)})
		if err == nil || !strings.Contains(err.Error(), x.text) || model.IsPermanent(err) == x.retried || x.retried && model.ClassOf(err) != x.class {
			t.Errorf("%s: want %q, have %v of the class %s, permanent %v", x.subject, x.text, err, model.ClassOf(err), model.IsPermanent(err))
		}
	}
	if p.Broken() {
		t.Error("want the connection to work on")
	}
	r.nats.Stop()
	if _, err := p.Publish(r.ctx, &broker.Outgoing{ID: "2", To: "orders.eu"}); err == nil || model.ClassOf(err) != "connection" || !p.Broken() {
		t.Errorf("want a broken connection while the server is away, have %v", err)
	}
}
