package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/remote"
)

// countedPipelines count the events of each key, and those that come before an earlier one.
const countedPipelines = `
flows: [{id: account, shared-state: {last: -1, events: 0, wrong: 0}}]
pipelines:
  - id: count
    on: counted
    flow: account
    stages:
      - id: a
        handlers:
          - id: keep
            set:
              events: !$ events + 1
              wrong: !$ "event.payload.n > last ? wrong : wrong + 1"
              last: !$ event.payload.n
`

// countedFlow counts the messages of JetStream.
const countedFlow = `
subscriptions:
  - id: orders
    broker: nats
    servers: [URL]
    stream: ORDERS
    filter: orders.>
    type: counted
    key: !$ message.body.key
    parallelism: 2
` + countedPipelines

const countedKeys = 100

// publish sends numbered messages of all keys.
func publish(ctx context.Context, t *testing.T, js jetstream.JetStream, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if _, err := js.PublishAsync("orders.eu", fmt.Appendf(nil, `{"key":"k-%d","n":%d}`, n%countedKeys, n)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}

// awaitAcked waits until so many messages are acknowledged.
func awaitAcked(ctx context.Context, t *testing.T, js jetstream.JetStream, most int) {
	t.Helper()
	for {
		c, err := js.Consumer(ctx, "ORDERS", "procaas-orders")
		if err == nil && int(c.CachedInfo().AckFloor.Stream) >= most {
			return
		}
		if !clock.Pause(ctx, 5*time.Millisecond) {
			t.Fatalf("%d messages are not acknowledged: %v", most, err)
		}
	}
}

// awaitCounted waits until each key has counted its share of the events. It must never count more, or out of order.
func awaitCounted(ctx context.Context, t *testing.T, c *client.Client, events int) {
	t.Helper()
	share := strconv.Itoa(events / countedKeys)
	for k := 0; k < countedKeys; {
		key := "k-" + strconv.Itoa(k)
		e, err := c.Entity(ctx, "account", key)
		n, wrong := fmt.Sprint(e.SharedState["events"]), fmt.Sprint(e.SharedState["wrong"])
		if number, _ := strconv.Atoi(n); number > events/countedKeys || number > 0 && wrong != "0" {
			t.Fatalf("want %s events of %s in order, have %v", share, key, e.SharedState)
		}
		if n == share {
			k++
		} else if !clock.Pause(ctx, 100*time.Millisecond) {
			t.Fatalf("want %s events of %s, have %v (%v)", share, key, e.SharedState, err)
		}
	}
	for k := range countedKeys { // nothing came twice later
		e, err := c.Entity(ctx, "account", "k-"+strconv.Itoa(k))
		if err != nil || fmt.Sprint(e.SharedState["events"]) != share || e.Waiting > 0 {
			t.Errorf("want %s events of k-%d and no more, have %v and %d that wait (%v)", share, k, e.SharedState, e.Waiting, err)
		}
	}
}

// TestSubscriptionsSurviveKill9 kills a node in the middle of 5,000 messages, and later one of two nodes. Each message becomes exactly one
// run, and the messages of a key run in their order.
func TestSubscriptionsSurviveKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	broker := brokertest.StartNATS(t)
	js := broker.Stream(ctx, "ORDERS", "orders.>")
	a := newCrashing(t, enginetest.MigratedPostgres(t), countedFlow, broker.URL())
	publish(ctx, t, js, 0, 2500)
	first := a.start(ctx)
	awaitAcked(ctx, t, js, 300)
	first.kill()
	first = a.start(ctx)
	b := newCrashing(t, a.store, countedFlow, broker.URL())
	second := b.start(ctx)
	awaitAcked(ctx, t, js, 2500)
	publish(ctx, t, js, 2500, 4000)
	awaitAcked(ctx, t, js, 2600)
	first.kill()
	died := time.Now()
	publish(ctx, t, js, 4000, 5000)
	awaitAcked(ctx, t, js, 5000)
	t.Logf("the second node had read all %s after the death of the first", time.Since(died).Round(10*time.Millisecond))
	awaitCounted(ctx, t, b.client, 5000)
	second.terminate()
}

// TestSubscriptionsForOperators looks at a subscription as operators do: while its broker is away, with messages that can become no
// event, and while they hold it.
func TestSubscriptionsForOperators(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	broker := brokertest.StartNATS(t)
	js := broker.Stream(ctx, "ORDERS", "orders.>")
	broker.Stop()
	flow := strings.ReplaceAll(countedFlow, "URL", broker.URL())
	o := operateNode(t, strings.Replace(flow, "type: counted", "type: !$ message.body.type ?? 'counted'\n    dead-letters: 3", 1))
	state := func(is func(s remote.Subscription) bool) func() bool {
		return func() bool {
			all, err := remote.List(ctx, o.client)
			return err == nil && len(all) == 1 && is(all[0])
		}
	}
	command := func(line string, want ...string) {
		t.Helper()
		var out bytes.Buffer
		Main(ctx, append(strings.Fields(line), "--server", o.server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("procaas %s: want %q, have\n%s", line, w, &out)
			}
		}
	}
	eventually(t, "the broker is away", state(func(s remote.Subscription) bool { return s.State == remote.Failing && s.Problem != "" }))
	command("doctor", "subscription orders is not read: ", "procaas docs runbook")
	if h, err := o.client.Health(ctx, false); err != nil || h.Status != "ready" {
		t.Errorf("a node whose broker is away must stay ready, have %+v (%v)", h, err)
	}
	broker.Start()
	js = broker.JetStream()
	publish(ctx, t, js, 0, countedKeys)
	awaitCounted(ctx, t, o.client, countedKeys)
	command("runs show k-1", "from      subscription orders: message ", " of the stream ORDERS of nats")

	send := func(bodies ...string) {
		for _, body := range bodies {
			if _, err := js.Publish(ctx, "orders.eu", []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(`not JSON`, `{"key":"k-1","n":1,"type":"strange"}`, `{"n":7}`)
	publish(ctx, t, js, countedKeys, 2*countedKeys)
	awaitCounted(ctx, t, o.client, 2*countedKeys)
	eventually(t, "three dead letters", state(func(s remote.Subscription) bool { return s.DeadLetters == 3 }))
	command("subscriptions dead-letters orders", "want a body of JSON", "no pipeline serves the event type strange", "key of subscription orders", "ORDERS/")
	command("subscriptions retry orders --all", "retry: 0 of 3", "key of subscription orders")

	send(`{"n":8}`) // there is no room for a fourth
	eventually(t, "the list is full", state(func(s remote.Subscription) bool {
		return strings.Contains(s.Problem, "no room for another dead letter")
	}))
	letters, err := remote.DeadLetters(ctx, o.client, "orders")
	if err != nil {
		t.Fatal(err)
	}
	command("subscriptions dead-letter orders "+letters[0].ID, "reason   want a body of JSON", "subject  orders.eu", "body\nnot JSON\n")
	command("subscriptions dead-letter orders nothing", `unknown dead letter "nothing" of subscription orders`)
	command("subscriptions dead-letters ordrs", `unknown subscription "ordrs", which no file declares; did you mean "orders"?`)
	command("subscriptions dead-letters z", "procaas subscriptions list shows those that are declared")
	command("subscriptions discard orders "+letters[0].ID+" --reason tried", "discard: 1 of 1")
	eventually(t, "the fourth", state(func(s remote.Subscription) bool { return s.State == remote.Reading && s.DeadLetters == 3 }))
	command("subscriptions discard orders "+letters[0].ID, "unknown dead letter")
	command("audit --kind dead-letter", "subscriptions/orders", "tried")

	o.write(strings.Replace(flow, "key: !$ message.body.key", "key: !$ message.body.lost\n    dead-letters: 3", 1))
	command("release reload")
	eventually(t, "the reason of the last retry", func() bool {
		if _, err := remote.Change(ctx, o.client, "orders", "retry", remote.Choice{All: true}); err != nil {
			return false
		}
		all, err := remote.DeadLetters(ctx, o.client, "orders")
		return err == nil && !slices.ContainsFunc(all, func(d remote.DeadLetter) bool { return !strings.Contains(d.Reason, "key of subscription orders") })
	})

	listed, err := remote.List(ctx, o.client)
	if err != nil || len(listed) != 1 {
		t.Fatalf("want one subscription, have %v (%v)", listed, err)
	}
	mended := strings.Replace(flow, "key: !$ message.body.key", "key: !$ message.body.key ?? 'k-1'\n    dead-letters: 3", 1)
	o.write(mended)
	command("release reload")
	eventually(t, "the mended mapping", func() bool {
		done, err := remote.Change(ctx, o.client, "orders", "retry", remote.Choice{All: true})
		return err == nil && done.Changed == 3
	})
	command("subscriptions list", "reading")
	eventually(t, "retried letters count as accepted", state(func(s remote.Subscription) bool { return s.Accepted == listed[0].Accepted+3 }))

	command("switch hold subscriptions/orders --for 10m", "subscriptions/orders")
	eventually(t, "held", state(func(s remote.Subscription) bool { return s.State == remote.Held }))
	command("switch off subscriptions/orders --for 10m", "can be held and nothing else")
	command("switch hold subscriptions/order --for 10m", "did you mean subscriptions/orders?")
	send(`{"key":"held","n":1}`)
	command("switch on subscriptions/orders")
	eventually(t, "the message that came while it was held", func() bool {
		e, err := o.client.Entity(ctx, "account", "held")
		return err == nil && fmt.Sprint(e.SharedState["events"]) == "1"
	})
}

// messagesOfFigure is for people: go test ./cmd/procaas -run TestFigureOfSubscriptions -messages 100000.
var messagesOfFigure = flag.Int("messages", 0, "measure how fast so many messages of JetStream become runs")

// TestFigureOfSubscriptions measures messages a second from JetStream into runs of one set, with PostgreSQL and the broker on the same
// machine: runs that have a key, and runs that have none.
func TestFigureOfSubscriptions(t *testing.T) {
	if *messagesOfFigure == 0 {
		t.Skip("only with -messages")
	}
	for name, key := range map[string]string{"keys": ", key: !$ message.id, parallelism: 2", "no keys": ""} {
		t.Run(name, func(t *testing.T) { measureSubscription(t, key) })
	}
}

// measureSubscription logs how fast all messages become runs. key maps the key of a message, so that several
// parts of a batch are stored at once, or is empty.
func measureSubscription(t *testing.T, key string) {
	ctx := t.Context()
	broker := brokertest.StartNATS(t)
	js := broker.Stream(ctx, "ORDERS", "orders.>")
	for n := 0; n < *messagesOfFigure; n += 1000 {
		publish(ctx, t, js, n, n+1000)
	}
	c := newCrashing(t, enginetest.MigratedPostgres(t), `
subscriptions:
  - {id: orders, broker: nats, servers: [URL], stream: ORDERS, type: counted`+key+`}
pipelines:
  - {id: count, on: counted, shared-state: {n: 0}, stages: [{id: a, handlers: [{id: keep, set: {n: !$ event.payload.n}}]}]}
`, broker.URL())
	server := c.start(ctx)
	awaitAcked(ctx, t, js, 1)
	began := time.Now()
	awaitAcked(ctx, t, js, *messagesOfFigure)
	acked := time.Since(began)
	for {
		b, err := c.client.Backlog(ctx)
		if err == nil && b.Waiting == 0 {
			break
		}
		clock.Pause(ctx, 100*time.Millisecond)
	}
	ran := time.Since(began)
	server.terminate()
	used := server.cmd.ProcessState.UserTime() + server.cmd.ProcessState.SystemTime()
	t.Logf("%d messages: acknowledged at %.0f/s, run at %.0f/s; the node used %s of a processor for each", *messagesOfFigure,
		float64(*messagesOfFigure)/acked.Seconds(), float64(*messagesOfFigure)/ran.Seconds(), used/time.Duration(*messagesOfFigure))
}
