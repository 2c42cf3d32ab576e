package stores

import (
	"log/slog"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/store"
)

// A database without cells has all slots, even if its table of slots differs.
func TestUniqueNamesNeedNoCells(t *testing.T) {
	t.Parallel()
	db, err := Options{DSN: enginetest.MigratedPostgres(t)}.Open(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	task := store.TaskSpec{Type: "mail", Unique: "u-1", Payload: []byte("null")}
	out, err := db.Tasks.Queue.PutTasks(t.Context(), []store.TaskSpec{task, task})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Outcome != store.PutAdded || out[1].Outcome != store.PutKept {
		t.Errorf("want one added and one kept, have %+v", out)
	}
}
