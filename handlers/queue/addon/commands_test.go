package addon

import (
	"testing"
	"time"

	"procaas/handlers/queue/remote"
)

func TestCountsShowWhatIsEstimated(t *testing.T) {
	t.Parallel()
	q := &remote.QueueStats{Estimated: []string{"ready"}}
	if have := counted(q, "ready", 4096) + " " + counted(q, "failed", 2); have != "~4096 2" {
		t.Errorf("have %s, want ~4096 2", have)
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	if have := askedAgo(nil, now); have != "never" {
		t.Errorf("have %s, want never", have)
	}
	for ago, want := range map[time.Duration]string{
		time.Minute: "now", 5*time.Minute + 30*time.Second: "5m ago", 3 * time.Hour: "3h ago", 50 * time.Hour: "2d ago",
	} {
		at := now.Add(-ago)
		if have := askedAgo(&at, now); have != want {
			t.Errorf("%v: have %s, want %s", ago, have, want)
		}
	}
}
