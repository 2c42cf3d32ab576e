package queue_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// TestNoTaskIsLostOrDoneTwice lets workers die with their tasks, and stall until others
// have taken them over, while many duplicates of one unique key come. Each completion
// that counts is counted.
func TestNoTaskIsLostOrDoneTwice(t *testing.T) {
	t.Parallel()
	s := open(t, enginetest.MigratedPostgres(t))
	const tasks, workers = 150, 4
	ctx, cancel := patience.Context(t.Context(), 5*time.Minute)
	defer cancel()
	var (
		mu       sync.Mutex
		done     = map[int64]int{}
		existing = map[int64]bool{}
		wg       sync.WaitGroup
	)
	put := func(specs ...queue.Spec) {
		out, err := s.PutTasks(ctx, specs)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, one := range out {
			if one.Outcome == store.PutAdded {
				existing[one.ID] = true
			}
		}
	}
	for i := range tasks {
		put(queue.Spec{Type: "t", Key: fmt.Sprint("k", i%11)})
	}
	wg.Go(func() {
		for range 60 {
			put(slices.Repeat([]queue.Spec{{Type: "t", Unique: "only"}}, 20)...)
		}
	})
	finished := func() bool {
		rest, err := s.PeekTasks(ctx, queue.Filter{Limit: 1})
		return err != nil || len(rest) == 0
	}
	ended := make(chan struct{})
	for w := range workers {
		wg.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(w), 1))
			var stalled []queue.Ref
			for {
				select {
				case <-ended:
					return
				default:
				}
				// A worker that means to finish has all the time in the world, so that the test ends
				// on a slow machine, too.
				fate, lease := chance.IntN(3), time.Hour
				if fate < 2 {
					lease = time.Duration(chance.IntN(30)) * time.Millisecond
				}
				got, err := s.ClaimTasks(ctx, queue.Claim{
					Worker: fmt.Sprint("w", w), Lease: lease,
					Types: []queue.Want{{Type: "t", Limit: 8, MaxPerKey: 2}},
				})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				report := stalled
				stalled = nil
				for _, one := range got {
					switch fate {
					case 0: // it dies with them
					case 1:
						stalled = append(stalled, one.Ref())
					default:
						report = append(report, one.Ref())
					}
				}
				slices.SortFunc(report, func(a, b queue.Ref) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch)) })
				lost, err := s.ReportTasks(ctx, queue.Report{Completed: report})
				if err != nil {
					t.Errorf("report: %v", err)
					return
				}
				mu.Lock()
				for _, ref := range report {
					if !slices.Contains(lost, ref) {
						done[ref.ID]++
					}
				}
				mu.Unlock()
			}
		})
	}
	for {
		if _, err := s.ReclaimTasks(ctx, 1000, 1<<30); err != nil {
			t.Errorf("reclaim: %v", err)
			break
		}
		if _, _, err := s.PromoteTasks(ctx, 1000); err != nil {
			t.Errorf("promote: %v", err)
			break
		}
		mu.Lock()
		all := len(existing) >= tasks && len(done) == len(existing)
		mu.Unlock()
		if all && finished() {
			break
		}
	}
	close(ended)
	wg.Wait()
	// What was put while the workers were told to end is left.
	rest, err := s.PeekTasks(t.Context(), queue.Filter{})
	if err != nil || len(rest) > 1 {
		t.Errorf("left %v, %v, want at most one with the unique key", rest, err)
	}
	for id, n := range done {
		if n != 1 || !existing[id] {
			t.Errorf("task %d was completed %d times", id, n)
		}
	}
	if len(done)+len(rest) != len(existing) {
		t.Errorf("%d tasks were put, %d completed, %d are left", len(existing), len(done), len(rest))
	}
}
