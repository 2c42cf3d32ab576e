package stats

import (
	"testing"
	"time"

	"procaas/engine/guard"
	"procaas/engine/store"
)

// A node that starts may count the runs before it has read the controls. It then shows what the
// runs waited for when they were parked.
func TestBacklogIsShownBeforeTheControlsAreKnown(t *testing.T) {
	t.Parallel()
	b := NewBacklog(store.Depth{Aside: []store.AsideRuns{
		{Pipeline: "work", Place: store.AsideParked, Cause: "work" + guard.CauseHold, Runs: 3},
	}}, time.Unix(0, 0))
	parked := b.View(nil, time.Unix(1, 0)).Parked
	if len(parked) != 1 || parked[0].Reason != ParkedHold || parked[0].Runs != 3 {
		t.Errorf("want 3 runs held, have %+v", parked)
	}
}
