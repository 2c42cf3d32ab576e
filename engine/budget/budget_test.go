package budget_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"procaas/engine/budget"
)

// used adds up what is used.
func used(m *budget.Memory) (n int) {
	for _, bytes := range m.Usage().Used {
		n += bytes
	}
	return n
}

func TestMemoryIsTakenAndReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := budget.New(1600) // 800 in all, of which 200 are in reserve, and 200 for one
		var runs []*budget.Holder
		for range 3 {
			h := m.Hold(budget.Runs)
			if err := h.Take(t.Context(), 200); err != nil {
				t.Fatal(err)
			}
			runs = append(runs, h)
		}
		if !m.Short() {
			t.Error("want memory short when only the reserve is left")
		}
		if h := m.Hold(budget.Requests); h.Try(1) {
			t.Error("want nothing of the reserve for a request")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Hold(budget.Requests).Take(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the request to wait until its end, have %v", err)
		}
		first, second := m.Hold(budget.Runs), m.Hold(budget.Runs)
		if err := first.Take(t.Context(), 150); err != nil {
			t.Errorf("want the reserve for the first that waits, have %v", err)
		}
		taken := make(chan error, 1)
		go func() { taken <- second.Take(t.Context(), 150) }()
		synctest.Wait()
		if len(taken) > 0 || m.Usage().Waiting != 1 {
			t.Fatal("want the second to wait")
		}
		runs[0].Close() // so the first does without the reserve
		if err := <-taken; err != nil || used(m) != 700 {
			t.Errorf("want the reserve for the second, have %v, and %d used", err, used(m))
		}
		for _, h := range append(runs, first, second, second) {
			h.Close()
		}
		if used(m) != 0 || m.Short() {
			t.Errorf("want all memory returned, have %v", m.Usage())
		}
	})
}

// What never fits gets an error at once, which says what to do.
func TestWhatNeverFitsIsRefused(t *testing.T) {
	t.Parallel()
	m := budget.New(1600)
	run := m.Hold(budget.Runs)
	run.Set(150)
	for _, h := range []*budget.Holder{run, run.Part(budget.Replies)} {
		var large *budget.TooLargeError
		if err := h.Take(t.Context(), 51); !errors.As(err, &large) || *large != (budget.TooLargeError{Wants: 51, Has: 150, Most: 200}) {
			t.Errorf("want it refused for good, have %v", err)
		}
	}
	if err := m.Hold(budget.Requests).Take(t.Context(), 201); !errors.As(err, new(*budget.TooLargeError)) {
		t.Errorf("want it refused for good, have %v", err)
	}
	if n := m.Usage().Refused[budget.Runs]; n != 1 {
		t.Errorf("want one refusal counted, have %d", n)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	var m *budget.Memory
	h := m.Hold(budget.Runs)
	if err := h.Part(budget.Replies).Take(t.Context(), 1<<60); err != nil || !h.Try(1<<60) || m.Short() {
		t.Errorf("want no limit, have %v", err)
	}
	h.Set(1)
	h.Close()
}

// Runs that all hold memory and need more do not wait for each other for ever: each one ends, and
// all memory that was asked for stays within the budget.
func TestRunsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(1, 60), 1, 6), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			m := budget.New(1600)
			most := 0
			var mu sync.Mutex
			look := func() {
				mu.Lock()
				defer mu.Unlock()
				most = max(most, used(m))
			}
			var all sync.WaitGroup
			for _, replies := range steps {
				all.Go(func() {
					run := m.Hold(budget.Runs)
					defer run.Close()
					var calls sync.WaitGroup
					for i, bytes := range replies {
						calls.Go(func() {
							time.Sleep(time.Duration(i) * time.Millisecond)
							reply := run.Part(budget.Replies)
							defer reply.Close()
							if err := reply.Take(t.Context(), bytes); err != nil {
								return // too large beside what the run keeps
							}
							look()
							time.Sleep(time.Millisecond)
							mu.Lock()
							defer mu.Unlock()
							if has := run.Has(); i%2 == 0 && has+bytes < 200 {
								run.Set(has + bytes) // kept; what Set counts was not asked for, so nobody may get it in between
								reply.Close()
							}
						})
					}
					calls.Wait()
				})
			}
			all.Wait() // synctest fails when all wait for ever
			if used(m) != 0 {
				t.Errorf("want all memory returned, have %v", m.Usage())
			}
			if most > 800 {
				t.Errorf("want at most 800 bytes used, have %d", most)
			}
		})
	})
}
