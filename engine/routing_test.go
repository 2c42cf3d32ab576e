package engine_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"procaas/engine"
)

// TestPartitionOfIsTheSameEverywhere pins what clients in other languages compute.
func TestPartitionOfIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key        string
		partitions int
		want       int
	}{
		{"", 1, 0}, {"", 64, 59}, {"user-1", 64, 57}, {"user-2", 64, 0}, {"user-1", 10000, 3306}, {"ключ", 1000, 202},
	} {
		if have := engine.PartitionOf(c.key, c.partitions); have != c.want {
			t.Errorf("PartitionOf(%q, %d): have %d, want %d", c.key, c.partitions, have, c.want)
		}
	}
}

func TestPartitionOfSpreadsKeys(t *testing.T) {
	t.Parallel()
	const partitions, keys = 64, 64_000
	counts := make([]int, partitions)
	for i := range keys {
		counts[engine.PartitionOf(fmt.Sprint("user-", i), partitions)]++
	}
	for p, n := range counts {
		if n < 800 || n > 1200 { // six standard deviations around 1000
			t.Errorf("partition %d has %d of %d keys", p, n, keys)
		}
	}
}

// TestPartitionOfKeepsKeysWhenPartitionsAreAdded says that a key only ever moves to a
// partition that is new.
func TestPartitionOfKeepsKeysWhenPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.String().Draw(t, "key")
		n := rapid.IntRange(1, 20_000).Draw(t, "partitions")
		more := n + rapid.IntRange(0, 20_000).Draw(t, "added")
		before, after := engine.PartitionOf(key, n), engine.PartitionOf(key, more)
		if before < 0 || before >= n {
			t.Fatalf("partition %d of %d", before, n)
		}
		if after != before && after < n {
			t.Fatalf("%q moved from partition %d to %d, which is not new", key, before, after)
		}
	})
}
