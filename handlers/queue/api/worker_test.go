package api

import (
	"fmt"
	"slices"
	"testing"

	"procaas/engine/store"
)

// A receipt of a claim is read as the attempt that it was made of. The number of the task stands before it.
func TestReceiptsOfAClaim(t *testing.T) {
	tasks := make([]store.QueuedTask, 1000)
	for i := range tasks {
		tasks[i] = store.QueuedTask{ID: 1 << (i % 62), Epoch: i + 1, Failures: i % 3, Type: fmt.Sprint("photos.", i%7)}
	}
	for i, view := range viewsOfClaim(tasks) {
		one, ok := parseReceipt(view.Receipt)
		if !ok || one != receiptOf(&tasks[i]) || view.Receipt != one.String() || view.ID != fmt.Sprint(tasks[i].ID) {
			t.Fatalf("want the receipt of %+v, have %q and the id %s", tasks[i], view.Receipt, view.ID)
		}
	}
	if n := testing.AllocsPerRun(10, func() { viewsOfClaim(tasks) }); n > 10 {
		t.Errorf("want no memory for single receipts, have %v allocations", n)
	}
}

// Of several receipts of one task, the first counts.
func TestEachTaskOfAReportCountsOnce(t *testing.T) {
	t.Parallel()
	refs := refsOf([]receipt{
		{TaskRef: store.TaskRef{ID: 3, Epoch: 1}}, {TaskRef: store.TaskRef{ID: 1, Epoch: 5}},
		{TaskRef: store.TaskRef{ID: 3, Epoch: 2}}, {TaskRef: store.TaskRef{ID: 1, Epoch: 4}},
	})
	if want := []store.TaskRef{{ID: 1, Epoch: 5}, {ID: 3, Epoch: 1}}; !slices.Equal(refs, want) {
		t.Errorf("want %v, have %v", want, refs)
	}
}
