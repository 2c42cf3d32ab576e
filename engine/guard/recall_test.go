package guard_test

import (
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/guard"
)

// TestLimitsAreRecalledThoughSomebodyHasLooked has the services shown before what nodes have found out is read.
func TestLimitsAreRecalledThoughSomebodyHasLooked(t *testing.T) {
	t.Parallel()
	var g guard.Guard
	shown := func() int {
		var info guard.ServiceInfo
		g.Gate("s").Fill(&info, guard.ServiceTerms(&tree.Service{ID: "s"}, 1), time.Unix(1_800_000_000, 0))
		return *info.Limit
	}
	if first := shown(); first != 20 {
		t.Fatalf("want the first limit of a service that nobody knows, have %d", first)
	}
	g.Recall(map[string]int{"s": 160})
	if limit := shown(); limit != 160 {
		t.Errorf("want the limit of before, 160, have %d", limit)
	}
}
