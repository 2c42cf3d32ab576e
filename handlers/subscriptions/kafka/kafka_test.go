package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/kafka"
	"procaas/handlers/subscriptions/language"
)

const partitions = 4

// A rig is a topic with members of a group.
type rig struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	cluster *kfake.Cluster
	sub     language.Subscription
	secrets map[string]string
	known   string // what the store knows of the topic
	client  *kgo.Client
}

func newRig(t *testing.T, more ...kfake.Opt) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: t.TempDir(), sub: language.Subscription{ID: "orders", Broker: "kafka", Topic: "orders", Start: "first"}}
	r.start(more...)
	return r
}

// start starts brokers with what they have stored.
func (r *rig) start(more ...kfake.Opt) {
	r.t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"), kfake.DataDir(r.dir)}, more...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	r.cluster, r.sub.Servers = c, c.ListenAddrs()
}

// connect returns the client of the test.
func (r *rig) connect(more ...kgo.Opt) {
	r.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.sub.Servers...), kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.Close)
	r.client = client
}

// send sends numbered messages, each to the partition of its number.
func (r *rig) send(from, to int) {
	r.t.Helper()
	if r.client == nil {
		r.connect()
	}
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

func (r *rig) options() broker.Options {
	o := brokertest.Options(&r.sub, r.secrets)
	o.Known = r.known
	return o
}

func (r *rig) open() broker.Source {
	r.t.Helper()
	s, err := kafka.Open(r.ctx, r.options())
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

// TestABrokerThatLosesMessagesReusesTheirOffsets restores what a broker had stored earlier. Messages that get the offsets of lost ones are
// other messages.
func TestABrokerThatLosesMessagesReusesTheirOffsets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.send(0, 40)
	s := r.open()
	r.done(s, r.read(s, 0, 40))
	s.Close()
	r.stop()
	kept := t.TempDir()
	copyDir(t, kept, r.dir)
	r.start()
	r.send(40, 80)
	s = r.open()
	ids := map[string]bool{}
	for _, m := range r.read(s, 40, 80) {
		ids[m.ID] = true
	}
	s.Close()
	r.stop()
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	copyDir(t, r.dir, kept)
	r.start()
	r.send(40, 80)
	s = r.open()
	defer s.Close()
	for _, m := range r.read(s, 40, 80) {
		if ids[m.ID] {
			t.Errorf("want another id for the message after the loss, have %s again", m.ID)
		}
	}
}

// TestAGroupThatIsAheadOfItsTopic has acknowledged messages that the broker has lost. It reads on.
func TestAGroupThatIsAheadOfItsTopic(t *testing.T) {
	t.Parallel()
	for name, epoch := range map[string]int32{"with epochs": 0, "without": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.send(0, 40)
			s := r.open()
			r.done(s, r.read(s, 0, 40))
			s.Close()
			admin := kadm.NewClient(r.client)
			var ahead kadm.Offsets
			for p := range int32(partitions) {
				ahead.AddOffset("orders", p, 30, epoch)
			}
			if err := admin.CommitAllOffsets(r.ctx, "procaas-orders", ahead); err != nil {
				t.Fatal(err)
			}
			s = r.open()
			defer s.Close()
			seen := map[string]bool{}
			for sent := false; !seen["40"] || !seen["43"]; {
				more, err := s.Fetch(r.ctx)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range more {
					seen[string(m.Body)] = true
				}
				if !sent {
					r.send(40, 44)
					sent = true
				}
			}
		})
	}
}

// TestAForgottenGroup deletes what the broker knows of the group. Nobody reads then, until the topic is made anew, too.
func TestAForgottenGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sub.Start = "new"
	s := r.open()
	r.send(0, 8)
	r.done(s, r.read(s, 0, 8))
	r.known = s.Origin()
	s.Close()
	if _, err := kadm.NewClient(r.client).DeleteGroup(r.ctx, "procaas-orders"); err != nil {
		t.Fatal(err)
	}
	r.send(0, 8) // nobody knows that these were not read
	if _, err := kafka.Open(r.ctx, r.options()); err == nil || !strings.Contains(err.Error(), "group procaas-orders") {
		t.Fatalf("want an error that names the group, have %v", err)
	}
	if err := errors.Join(r.cluster.DeleteTopic("orders"), r.cluster.CreateTopic("orders", partitions, nil)); err != nil {
		t.Fatal(err)
	}
	r.connect()
	r.send(0, 8)
	s = r.open()
	defer s.Close()
	r.read(s, 0, 8)
}

// TestLeadersChange moves partitions and the group to other brokers, and takes one away, while messages come. kfake forgets with each move
// in which epoch a message came, so some come again.
func TestLeadersChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, kfake.NumBrokers(3))
	s := r.open()
	defer s.Close()
	seen, next := map[string]bool{}, map[int]int{0: 0, 1: 1, 2: 2, 3: 3}
	read := func(to int) {
		t.Helper()
		for len(seen) < to {
			more, err := s.Fetch(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range more {
				n, _ := strconv.Atoi(string(m.Body))
				if !seen[m.ID] && n != next[n%partitions] {
					t.Fatalf("want %d next in its partition, have %d as %s", next[n%partitions], n, m.ID)
				}
				next[n%partitions] = max(next[n%partitions], n+partitions)
				seen[m.ID] = true
			}
			r.done(s, more)
		}
	}
	for round, harm := range []func() error{
		func() error { return r.cluster.MoveTopicPartition("orders", 0, (r.cluster.LeaderFor("orders", 0)+1)%3) },
		func() error { r.cluster.ShufflePartitionLeaders(); return nil },
		func() error { r.cluster.RehashCoordinators(); return nil },
		func() error { return r.cluster.RemoveNode(2) },
	} {
		r.send(40*round, 40*round+20)
		read(40*round + 20)
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		r.send(40*round+20, 40*round+40)
		read(40*round + 40)
	}
}

// TestLoginsAndEncryption connects as each kind of user, over TLS. Wrong passwords and unknown issuers are errors that say so.
func TestLoginsAndEncryption(t *testing.T) {
	t.Parallel()
	server, secrets := brokertest.Encryption(t)
	r := newRig(t, kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser("PLAIN", "eve", "secret"), kfake.Superuser("SCRAM-SHA-256", "eve", "secret"),
		kfake.Superuser("SCRAM-SHA-512", "eve", "secret"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(secrets["ca"]))
	r.connect(kgo.DialTLSConfig(&tls.Config{RootCAs: roots, Certificates: server.Certificates, MinVersion: tls.VersionTLS12}),
		kgo.SASL(plain.Auth{User: "eve", Pass: "secret"}.AsMechanism()))
	r.secrets = secrets
	secrets["right"], secrets["wrong"] = "secret", "guess"
	secret := brokertest.Secret
	r.sub.TLS = &language.Encryption{CA: secret("ca"), Certificate: secret("certificate"), Key: secret("key")}
	for i, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		r.sub.Auth = &language.Login{Username: "eve", Password: secret("right"), Mechanism: mechanism}
		r.send(4*i, 4*i+4)
		s := r.open()
		r.done(s, r.read(s, 4*i, 4*i+4))
		s.Close()
		r.sub.Auth.Password = secret("wrong")
		r.refused("orders")
	}
	r.sub.Auth.Password = secret("right")
	r.sub.TLS = &language.Encryption{CA: secret("ca")}
	r.refused("") // the server may tell why, or be gone before
	r.sub.TLS = &language.Encryption{Certificate: secret("certificate"), Key: secret("key")}
	r.refused("unknown authority")
	r.sub.TLS = nil
	r.refused("TLS")
}

// refused wants an error that says why.
func (r *rig) refused(why string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
	defer cancel()
	if _, err := kafka.Open(ctx, r.options()); err == nil || !strings.Contains(err.Error(), why) {
		r.t.Errorf("want an error about %s, have %v", why, err)
	}
}

func (r *rig) stop() {
	r.client.Close()
	r.client = nil
	r.cluster.Close()
}

func copyDir(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestNobodyListens returns an error instead of waiting.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	sub := &language.Subscription{ID: "orders", Servers: []string{"127.0.0.1:1"}, Topic: "orders"}
	if _, err := kafka.Open(t.Context(), brokertest.Options(sub, nil)); err == nil {
		t.Error(fmt.Errorf("want an error"))
	}
}
