package sharding_test

import (
	"testing"
	"time"

	"procaas/handlers/sharding/transfers"
)

// Tables without a primary key can be enrolled and written. Their keys move while writers wait, also
// if the coordinator dies.
func TestTablesWithoutPrimaryKeysMove(t *testing.T) {
	t.Parallel()
	r := newRig(t, transferMap)
	for _, shard := range []string{"s1", "s2"} {
		r.exec(shard, "alter table labels drop constraint labels_pkey")
	}
	m := moverOn(t, r, 10*time.Second)
	for _, shard := range []string{"s1", "s2"} {
		m.exec(shard, "update labels set id = id; delete from labels where user_id = 0")
	}
	c := m.write()
	c.await(10)
	dies := func() error { return errCrash }
	left := m.atEach(map[string]func() error{"copied": dies, "switched": dies, "cleanup": dies})
	m.start(`, "grace": "0s"`)
	got := m.awaitState(transfers.TransferDone)
	if got.Method != "lock-copy-switch" || !got.Switched || got.Error != "" {
		t.Errorf("have %+v", got)
	}
	c.await(10)
	c.check("s2")
	if points := left(); len(points) > 0 {
		t.Errorf("it never came to %v", points)
	}
}
