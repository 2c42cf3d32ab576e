package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// BenchmarkClaimManyTypes claims from thousands of types. None, few or all of them have ready tasks.
func BenchmarkClaimManyTypes(b *testing.B) {
	for _, types := range []int{100, 5000} {
		for _, busy := range []int{0, 50, types} {
			b.Run(fmt.Sprint(types, "-types-", busy, "-busy"), func(b *testing.B) {
				s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "tasks.db"), sqlite.Options{Migrate: true, Fast: true})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				claim := store.TaskClaim{Worker: "w", Limit: 100, Lease: time.Hour}
				var specs []store.TaskSpec
				for i := range types {
					claim.Types = append(claim.Types, store.TaskWant{Type: fmt.Sprint("t", i), Limit: 10})
					for range 20 * min(1, max(0, busy-i)) {
						specs = append(specs, store.TaskSpec{Type: fmt.Sprint("t", i)})
					}
				}
				if _, err := s.Tasks().Queue.PutTasks(b.Context(), specs); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if _, err := s.Tasks().Work.ClaimTasks(b.Context(), claim); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
