package language

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
)

// sorted orders all workers by a partition's preference, in rounds of one per zone if zones matter.
// The maps of live clusters depend on this order, so it must never change.
func sorted(workers []ClusterWorker, seed, p int, zones bool) []int {
	preference := make([]uint64, len(workers))
	order := make([]int, len(workers))
	for i, w := range workers {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d/%d/%s", seed, p, w.ID)
		preference[i], order[i] = draw(h.Sum64()).number(), i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(preference[b], preference[a]), cmp.Compare(workers[a].ID, workers[b].ID))
	})
	if zones {
		round, seen := map[int]int{}, map[string]int{}
		for _, i := range order {
			round[i] = seen[workers[i].Zone]
			seen[workers[i].Zone]++
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(round[a], round[b]) })
	}
	return order
}

func TestHoldersAreTheFirstOfAllSortedWorkers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := &Cluster{Partitions: 5, Map: &PartitionMap{
			Rule: []string{"random", "zone"}[random.IntN(2)], Replicas: 1 + random.IntN(6), Seed: random.IntN(100) - 50,
		}}
		var workers []ClusterWorker
		for i := range random.IntN(40) {
			workers = append(workers, ClusterWorker{ID: fmt.Sprint("worker-", i), Zone: fmt.Sprint("z", random.IntN(4))})
		}
		for p, have := range Holders(c, workers) {
			want := sorted(workers, c.Map.Seed, p, c.Map.Rule == "zone")
			want = want[:min(c.Map.Replicas, len(want))]
			if !slices.Equal(have, want) {
				t.Fatalf("partition %d of %+v with %d workers: have %v, want %v", p, *c.Map, len(workers), have, want)
			}
		}
	}
}
