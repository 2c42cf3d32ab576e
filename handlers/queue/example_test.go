package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/handlers/queue"
)

// A Welcome is what a task of this example is about.
type Welcome struct {
	User string `json:"user"`
}

// Welcomes is what those who put the tasks and those who do them agree on.
var Welcomes = queue.Kind[Welcome]{Name: "send-welcome", Timeout: 30 * time.Second, MaxPerKey: 1}

// A service stores a user and the task to welcome them in one transaction: both are
// there, or none. A worker does the task.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dsn, drop := database(ctx)
	defer drop()
	store, err := queue.Open(ctx, dsn, queue.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		panic(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "create table users (id text primary key)"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into users values ('user-1')"); err != nil {
			return err
		}
		task, err := Welcomes.Task(Welcome{User: "user-1"})
		if err != nil {
			return err
		}
		task.Key, task.Unique = "user-1", "user-1" // once, however often it is asked for
		_, err = store.Enqueue(ctx, tx, task)
		return err
	})
	if err != nil {
		panic(err)
	}

	worker := queue.NewWorker(store, queue.WorkerOptions{})
	queue.Register(worker, Welcomes, func(_ context.Context, j queue.Job[Welcome]) error {
		fmt.Println("welcome,", j.Payload.User)
		stop() // a real worker goes on until its process ends
		return nil
	})
	if err := worker.Run(ctx); err != nil {
		panic(err)
	}
	// Output: welcome, user-1
}

// database makes a schema for the example.
func database(ctx context.Context) (dsn string, drop func()) {
	dsn, remove, err := enginetest.ScratchPostgres(ctx)
	if err != nil {
		panic(err)
	}
	drop = func() {
		if err := remove(); err != nil {
			panic(err)
		}
	}
	if _, err := postgres.Migrate(ctx, dsn); err != nil {
		panic(err)
	}
	return dsn, drop
}
