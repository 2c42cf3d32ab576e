package queue_test

import (
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/handlers/queue"
)

func open(t testing.TB, dsn string) *queue.Store {
	t.Helper()
	if _, _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	s, err := queue.Open(t.Context(), dsn, queue.Options{})
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
	enginetest.TaskConformance(t, func(t *testing.T) engine.TaskStore { return open(t, enginetest.Postgres(t)) })
}
