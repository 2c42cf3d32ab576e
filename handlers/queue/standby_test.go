package queue_test

import (
	"strings"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/pgkit"
	"procaas/handlers/queue"
)

// The primary is away for a while, and the address of the store names a standby, too. The queue takes tasks again when the primary is
// back: it keeps no connections to the standby, where it can write nothing.
func TestTheQueueLeavesAStandby(t *testing.T) {
	t.Parallel()
	primary := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, primary)
	s := open(t, strings.Replace(primary.URL, primary.Addr(), primary.Addr()+","+standby.Addr(), 1))
	put := func() error {
		_, err := s.PutTasks(t.Context(), []queue.Spec{{Type: "one"}})
		return err
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if err := primary.Halt(enginetest.StopFast); err != nil {
		t.Fatal(err)
	}
	for range 20 { // more often than there are connections
		if err := put(); err == nil || pgkit.IsReadOnly(err) {
			t.Fatalf("want no connection to the standby, have %v", err)
		}
	}
	if err := primary.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the queue to take tasks again", func() bool { return put() == nil })
}
