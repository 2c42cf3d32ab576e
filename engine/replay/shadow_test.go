package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/canary"
	"procaas/engine/model"
	"procaas/engine/replay"
	"procaas/engine/stats"
)

// Runs beyond the queue are skipped at once, and counted: the flow never waits for replays.
func TestTooManyEndedRunsAreSkipped(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var told []model.Tally
	s := replay.NewShadow()
	s.ShadowParts = replay.ShadowParts{
		Tally: func(all ...model.Tally) { told = append(told, all...) }, Now: func() time.Time { return now },
		Metrics: stats.NewMetrics(prometheus.NewRegistry()),
	}
	trial := canary.Begin("old", "new", canary.Order{Percent: 100, Shadow: true}, 0, nil, "ann", "", now)
	for i := range 300 {
		s.Ended(trial, "p", fmt.Sprint("r", i))
	}
	if len(told) != 300-256 || !strings.Contains(told[0].Path, "too many runs ended") {
		t.Fatalf("want 44 runs skipped, have %d: %v", len(told), told)
	}
	trial.Decide(now, told, "old", nil)
	if n := trial.Shadow.Total(); n.Skipped != 44 {
		t.Errorf("want 44 skipped, have %s", n.Text())
	}
}
