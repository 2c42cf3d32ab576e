//go:build pooler

package postgres_test

import (
	"crypto/rand"
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
