package transfers_test

import (
	"fmt"
	"testing"
	"time"

	"procaas/handlers/sharding/transfers"
)

// A drain takes as long as its keys and bytes need at least, and later as its own speed says.
func TestDrainTime(t *testing.T) {
	t.Parallel()
	asked := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	v := transfers.ShardView{ID: "s1", Placements: 3000, Used: 600 * 10 << 20, DrainAsked: &asked}
	if have := v.DrainTime(nil); have != time.Hour+10*time.Minute {
		t.Errorf("before: %v, want an hour for the keys and ten minutes for the bytes", have)
	}
	v.Draining = "old disks"
	var all []transfers.ShardTransfer
	for i := range 20 {
		at := asked.Add(time.Duration(i) * 10 * time.Second)
		all = append(all, transfers.ShardTransfer{ID: fmt.Sprint(i), Source: "s1", State: transfers.TransferDone, Started: at, Changed: at},
			transfers.ShardTransfer{Source: "s2", State: transfers.TransferDone, Started: at, Changed: at},
			transfers.ShardTransfer{Source: "s1", State: transfers.TransferDone, Started: asked.Add(-time.Hour), Changed: asked})
	}
	v.Placements = 100
	if have := v.DrainTime(all); have != 1000*time.Second {
		t.Errorf("with a key each ten seconds: %v, want 1000 s for the other 100", have)
	}
}
