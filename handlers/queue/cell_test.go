package queue_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// A claim that holds types asks its own database meanwhile. However many claims hold types at once,
// connections are left for what they ask.
func TestClaimsThatHoldTypesLeaveConnections(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	db, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	c := db.Cell()
	if err := queue.Attach(t.Context(), c, dsn, queue.Options{MaxConns: 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 8 {
		types := []string{fmt.Sprint("t", i)}
		all.Go(func() {
			for range 20 {
				err := c.Shared.HoldTypes(ctx, types, func() error {
					_, err := c.Shared.TakenTasks(ctx, types)
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestOneConnectionIsTooFewForACell(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	db, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = queue.Attach(t.Context(), db.Cell(), dsn, queue.Options{MaxConns: 1})
	if err == nil {
		t.Fatal("want an error, since claims that hold types need a second connection")
	}
	t.Log(err)
}

// A database without cells has all slots, even if its table of slots differs.
func TestUniqueNamesNeedNoCells(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	db, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := db.Cell()
	if err := queue.Attach(t.Context(), c, dsn, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	task := store.TaskSpec{Type: "mail", Unique: "u-1", Payload: []byte("null")}
	out, err := c.Tasks.Queue.PutTasks(t.Context(), []store.TaskSpec{task, task})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Outcome != store.PutAdded || out[1].Outcome != store.PutKept {
		t.Errorf("want one added and one kept, have %+v", out)
	}
}
