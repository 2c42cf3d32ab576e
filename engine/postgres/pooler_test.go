//go:build pooler

package postgres_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/store"
)

// These tests need PgBouncer: make test-long ONLY=pooler installs it and runs them.

// database makes a database, and returns its URL through the pooler: PgBouncer does
// not pass search_path on. It goes with the cluster: PgBouncer 1.18 may crash when a
// database is dropped that it has connections to.
func database(t *testing.T, direct, through string) string {
	t.Helper()
	name := "d" + strings.ToLower(rand.Text())
	c := connect(t, direct)
	run(t, c, "create database "+name)
	return strings.Replace(through, "/postgres?", "/"+name+"?", 1)
}

func TestPoolerConformance(t *testing.T) {
	b := enginetest.StartBouncer(t)
	conformance.Store(t, func(t *testing.T) store.Store { return open(t, database(t, b.Direct, b.URL)).Ports() })
}

// The primary fails over to a replica that lags behind. Clients of PgBouncer keep their connections, so none is made that would ask the
// server what it has. The first event that the store writes there is not acknowledged, before any node renews its lease.
func TestPoolerAcknowledgesNothingOnALaggingReplica(t *testing.T) {
	p := startPair(t)
	b := enginetest.BouncerBefore(t, p.primary)
	s := open(t, b.URL)
	p.fallBehind(s)
	p.failOverBehind()
	b.Point(t, p.standby)
	if err := write(t, s, "refused"); !errors.Is(err, store.ErrLost) || !strings.Contains(err.Error(), "restart this process") {
		t.Errorf("want the event refused with what to do, have %v", err)
	}
}
