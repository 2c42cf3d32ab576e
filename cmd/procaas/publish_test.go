package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/handlers/subscriptions/brokertest"
)

const publishingFlow = `
brokers: [{id: hub, kind: nats, servers: ["nats://URL"]}]
pipelines:
  - id: tell
    shared-state: {at: null}
    stages:
      - id: a
        handlers:
          - id: send
            publish: {broker: hub, subject: orders.paid, body: {n: !$ event.id}}
            retry: {attempts: 20, min-delay: 10ms}
            result: {at: !$ sources.send.response.sequence}
`

// A deafener is between a node and its broker. While it is on, the broker hears the node, and the node nothing of the broker.
type deafener struct {
	net.Listener
	on atomic.Bool
}

func newDeafener(t *testing.T, target string) *deafener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &deafener{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			node, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				node.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, node) // until one of them has gone
				server.Close()
			}()
			go func() {
				_, _ = io.Copy(hearing{d, node}, server)
				node.Close()
			}()
		}
	}()
	return d
}

// A hearing drops what a node shall not hear.
type hearing struct {
	*deafener
	io.Writer
}

func (h hearing) Write(b []byte) (int, error) {
	if h.on.Load() {
		return len(b), nil
	}
	return h.Writer.Write(b)
}

// awaitMessages waits until a stream has so many messages.
func awaitMessages(ctx context.Context, t *testing.T, js jetstream.JetStream, stream string, want int) {
	t.Helper()
	for {
		s, err := js.Stream(ctx, stream)
		if err == nil && int(s.CachedInfo().State.Msgs) >= want {
			return
		}
		if !clock.Pause(ctx, 10*time.Millisecond) {
			t.Fatalf("want %d messages in %s (%v)", want, stream, err)
		}
	}
}

var duplicates = regexp.MustCompile(`procaas_published_messages_total\{broker="hub",outcome="duplicate"\} (\d+)`)

// TestPublishSurvivesKill9 kills a node whose messages the broker has stored, before the node hears of it. The next node sends them again,
// and JetStream keeps each once.
func TestPublishSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	broker := brokertest.StartNATS(t)
	js := broker.Stream(ctx, "ORDERS", "orders.>")
	between := newDeafener(t, strings.TrimPrefix(broker.URL(), "nats://"))
	c := newCrashing(t, "sqlite:"+t.TempDir()+"/publish.db", publishingFlow, between.Addr().String())
	server := c.start(ctx)
	const events = 20
	c.await(ctx, c.handIn(ctx, "tell"), model.Succeeded, "")
	between.on.Store(true)
	runs := c.submitEach(ctx, "tell", events)
	awaitMessages(ctx, t, js, "ORDERS", 1+events)
	server.kill()
	between.on.Store(false)
	server = c.start(ctx)
	places := map[string]bool{}
	for _, run := range runs {
		v := c.await(ctx, run, model.Succeeded, "")
		places[fmt.Sprint(v.SharedState["at"])] = true
	}
	s, err := js.Stream(ctx, "ORDERS")
	if err != nil || s.CachedInfo().State.Msgs != 1+events || len(places) != events {
		t.Errorf("want %d messages, each of one run, have %d of %d runs (%v)", 1+events, s.CachedInfo().State.Msgs, len(places), err)
	}
	found := duplicates.FindSubmatch(c.metrics())
	if found == nil || string(found[1]) != strconv.Itoa(events) {
		t.Errorf("want a metric of %d duplicates, have %s", events, found)
	}
	server.terminate()
}
