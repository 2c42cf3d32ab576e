// Package brokertest runs brokers inside of tests.
package brokertest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"procaas/engine/enginetest/ports"
)

// A NATS is a server of NATS with JetStream, which a test may stop and start again with what it has stored.
type NATS struct {
	t       testing.TB
	options server.Options
	client  []nats.Option
	server  *server.Server
}

// StartNATS starts a server that ends with the test.
func StartNATS(t testing.TB) *NATS { return StartGuardedNATS(t, server.Options{}) }

// StartGuardedNATS starts a server with options, which lets the test itself in as client says.
func StartGuardedNATS(t testing.TB, o server.Options, client ...nats.Option) *NATS {
	t.Helper()
	port, release, err := ports.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	o.Host, o.Port = "127.0.0.1", port
	o.JetStream, o.StoreDir = true, t.TempDir()
	o.NoSigs, o.NoLog = true, true
	n := &NATS{t: t, options: o, client: client}
	n.Start()
	t.Cleanup(n.Stop)
	return n
}

// Start starts the server, at the address that it had before.
func (n *NATS) Start() {
	n.t.Helper()
	o := n.options
	s, err := server.NewServer(&o)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		n.t.Fatal("the server of NATS is not ready")
	}
	n.server = s
}

// Stop stops the server, which keeps what it has stored.
func (n *NATS) Stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// Keep copies what the stopped server has stored.
func (n *NATS) Keep() (copied string) {
	n.t.Helper()
	copied = n.t.TempDir()
	n.restore(copied, n.options.StoreDir)
	return copied
}

// Restore returns the stopped server to what Keep has copied.
func (n *NATS) Restore(kept string) {
	n.t.Helper()
	if err := os.RemoveAll(n.options.StoreDir); err != nil {
		n.t.Fatal(err)
	}
	n.restore(n.options.StoreDir, kept)
}

func (n *NATS) restore(to, from string) {
	n.t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		n.t.Fatal(err)
	}
}

// URL is the address of the server.
func (n *NATS) URL() string { return fmt.Sprint("nats://127.0.0.1:", n.options.Port) }

// JetStream connects to the server.
func (n *NATS) JetStream() jetstream.JetStream {
	n.t.Helper()
	nc, err := nats.Connect(n.URL(), n.client...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		n.t.Fatal(err)
	}
	return js
}

// Stream makes a stream of a name in capital letters, whose subjects begin with the same in small ones.
func (n *NATS) Stream(ctx context.Context, name, subjects string) jetstream.JetStream {
	n.t.Helper()
	js := n.JetStream()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subjects}}); err != nil {
		n.t.Fatal(err)
	}
	return js
}
