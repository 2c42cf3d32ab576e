package postgres_test

import (
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/postgres"
)

func open(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	enginetest.Conformance(t, func(t *testing.T) engine.Store { return open(t, enginetest.Postgres(t)) })
}
