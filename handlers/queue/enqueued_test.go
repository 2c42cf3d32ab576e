package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

// asIs leaves enqueued tasks as they are, and refuses those of the type bad.
func asIs(t *store.TaskSpec) (string, error) {
	if t.Type == "bad" {
		return "its unique expression fails", nil
	}
	return "", nil
}

// TestEnqueuedTasksComeOnce lets programs enqueue 2,000 tasks in transactions that overlap, while two processes take them. Some transactions
// are rolled back, and some processes give up in the middle.
func TestEnqueuedTasksComeOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	dsn := enginetest.MigratedPostgres(t)
	a, b := open(t, dsn), open(t, dsn)
	const programs, each = 4, 500
	var writes, takes sync.WaitGroup
	for p := range programs {
		writes.Go(func() {
			c, err := pgx.Connect(ctx, dsn)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close(ctx) }()
			for n := range each {
				_, err := c.Exec(ctx, fmt.Sprintf("begin; select procaas_enqueue('work', '\"%d-%d\"', 'k'); rollback; begin; select procaas_enqueue('work', '\"%d-%d\"', 'k'); commit",
					p, each+n, p, n))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wrote, stop := context.WithCancel(ctx)
	for i, s := range []store.TaskEnqueued{a, b} {
		takes.Go(func() {
			fails := 0
			for {
				ended := wrote.Err() != nil
				n, err := s.TakeEnqueued(ctx, 37, func(t *store.TaskSpec) (string, error) {
					if fails++; fails%(100+i) == 0 {
						return "", errors.New("given up")
					}
					return asIs(t)
				})
				if err != nil && err.Error() != "given up" {
					t.Error(err)
					return
				}
				if n == 0 && err == nil && ended {
					return
				}
			}
		})
	}
	writes.Wait()
	stop()
	takes.Wait()
	got := map[string]int{}
	next := make([]int, programs) // tasks of a program come in their order
	for {
		tasks, err := a.ClaimTasks(ctx, store.TaskClaim{Types: []store.TaskWant{{Type: "work", Limit: 100}}, Limit: 100, Worker: "w", Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) == 0 {
			break
		}
		for _, task := range tasks {
			var p, n int
			if _, err := fmt.Sscanf(string(task.Payload), `"%d-%d"`, &p, &n); err != nil {
				t.Fatalf("%s: %v", task.Payload, err)
			}
			if n != next[p] {
				t.Errorf("want task %d of program %d next, have %d", next[p], p, n)
			}
			next[p] = n + 1
			got[string(task.Payload)]++
		}
	}
	if len(got) != programs*each {
		t.Errorf("want %d tasks, have %d", programs*each, len(got))
	}
	for payload, n := range got {
		if n > 1 {
			t.Errorf("task %s came %d times", payload, n)
		}
	}
}

// TestEnqueuedTasksThatCannotBePut looks at tasks that are refused, that wait while their type drains, and that have one name.
func TestEnqueuedTasksThatCannotBePut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	take := func(want int) {
		t.Helper()
		if n, err := s.TakeEnqueued(ctx, 100, asIs); err != nil || n != want {
			t.Errorf("want %d taken, have %d (%v)", want, n, err)
		}
	}
	call := func(statement string) error {
		t.Helper()
		_, err := s.Pool().Exec(ctx, "select "+statement)
		return err
	}
	for _, statement := range []string{
		"procaas_enqueue('bad', '{\"a\": 1}', 'k')", "procaas_enqueue('drained')", "procaas_enqueue('named', '1', unique_name => 'n')",
		"procaas_enqueue('named', '2', unique_name => 'n')", "procaas_enqueue('named', priority => 7, due => now() + interval '1 hour')",
	} {
		if err := call(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetTaskMode(ctx, "drained", store.TasksDraining, ""); err != nil {
		t.Fatal(err)
	}
	take(4)
	take(0)
	peek := func(kind string, state store.TaskState) []store.QueuedTask {
		t.Helper()
		all, err := s.PeekTasks(ctx, store.TaskFilter{Type: kind, State: state, Limit: 10, MaxPayload: 100})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if dead := peek("bad", store.TaskFailed); len(dead) != 1 || dead[0].Error != "its unique expression fails" || dead[0].Key != "k" || string(dead[0].Payload) != `{"a": 1}` {
		t.Errorf("want a dead letter, have %+v", dead)
	}
	if done, err := s.RetryTasks(ctx, store.TaskFilter{Type: "bad"}); err != nil || len(done) != 1 {
		t.Errorf("want the dead letter retried, have %+v (%v)", done, err)
	}
	if ready := peek("named", store.TaskReady); len(ready) != 1 || string(ready[0].Payload) != "1" {
		t.Errorf("want the first of two tasks with one name, have %+v", ready)
	}
	if later := peek("named", store.TaskScheduled); len(later) != 1 || later[0].Priority != 7 {
		t.Errorf("want a task in an hour, have %+v", later)
	}
	if err := s.SetTaskMode(ctx, "drained", store.TasksOpen, ""); err != nil {
		t.Fatal(err)
	}
	take(1)
	for statement, want := range map[string]string{
		"procaas_enqueue('')":                                      "want a type, have none",
		"procaas_enqueue(repeat('x', 513))":                        "want a type of at most 512 bytes, have 513",
		"procaas_enqueue('a', 'null', repeat('x', 513))":           "want a key of at most 512 bytes, have 513",
		"procaas_enqueue('a', unique_name => repeat('x', 513))":    "want a unique_name of at most 512 bytes, have 513",
		"procaas_enqueue('a', priority => -1000001)":               "want a priority from -1000000 to 1000000, have -1000001",
		"procaas_enqueue('a', due => now() + interval '20 years')": "want a time within ten years",
		"procaas_enqueue('a', to_jsonb(repeat('x', 1000000)))":     "want a payload of at most 1000000 bytes, have 1000002",
	} {
		err := call(statement)
		if why, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.Contains(why.Message, want) {
			t.Errorf("%s: want %q, have %v", statement, want, err)
		}
	}
	var public bool
	err := s.Pool().QueryRow(ctx, "select bool_or(has_function_privilege('public', oid, 'execute')) from pg_proc where proname = 'procaas_enqueue'").Scan(&public)
	if err != nil || public {
		t.Errorf("want that nobody may enqueue without a grant, have %t (%v)", public, err)
	}
}

// TestEnqueuedTasksAreErased erases the tasks of a key that no node has taken yet. They count as tasks that wait.
func TestEnqueuedTasksAreErased(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, enginetest.MigratedPostgres(t))
	if _, err := s.Pool().Exec(ctx, "select procaas_enqueue(t, 'null', k) from unnest('{a,a,a,b}'::text[], '{k,k,other,k}'::text[]) as c (t, k)"); err != nil {
		t.Fatal(err)
	}
	types := []string{"a"}
	if d, err := s.KeyTasks(ctx, types, "k"); err != nil || d.Waiting != 2 {
		t.Errorf("want 2 tasks that wait, have %+v (%v)", d, err)
	}
	if d, err := s.EraseTasks(ctx, types, "k", false); err != nil || d.Waiting != 0 {
		t.Errorf("want that tasks that wait stay, have %+v (%v)", d, err)
	}
	if d, err := s.EraseTasks(ctx, types, "k", true); err != nil || d != (store.TaskData{Waiting: 2}) {
		t.Errorf("want 2 tasks erased, have %+v (%v)", d, err)
	}
	if n, err := s.TakeEnqueued(ctx, 10, asIs); err != nil || n != 2 {
		t.Errorf("want the 2 others left, have %d (%v)", n, err)
	}
}
