package seen

import (
	"fmt"
	"testing"
	"time"

	"procaas/engine/stats"
)

// A handler that nobody calls costs nothing, and its chart has all times. A day later what was called once is forgotten.
func TestHistoryKeepsOnlyWhatWasCalled(t *testing.T) {
	t.Parallel()
	h, now, ratio := NewHistory(), time.Now(), 0.5
	handlers := make([]stats.HandlerInfo, 7000)
	for i := range handlers {
		handlers[i].Path = fmt.Sprint("p/s/h", i)
	}
	for range 3 {
		h.Sample(now, handlers, stats.Numbers{})
		now = now.Add(SampleEvery)
	}
	handlers[7].CallsPerS, handlers[7].SuccessRatio = 4, &ratio
	h.Sample(now, handlers, stats.Numbers{})
	if len(h.handlers) != 1 || len(h.handlers["p/s/h7"]) != 1 {
		t.Errorf("want one point of one handler in memory, have %d handlers", len(h.handlers))
	}
	for path, rate := range map[string]float64{"p/s/h7": 4, "p/s/h8": 0} {
		points := h.Of(path)
		if len(points) != 4 || points[0].Ratio != -1 || points[3].Rate != rate || !points[3].At.Equal(now) {
			t.Errorf("%s: want four points, the last with %g calls a second, have %v", path, rate, points)
		}
	}
	for range 2 * sampleSpan {
		now = now.Add(SampleEvery)
		h.Sample(now, nil, stats.Numbers{})
	}
	if len(h.handlers) != 0 || len(h.Of("p/s/h7")) != sampleSpan || cap(h.points) > 2*sampleSpan {
		t.Errorf("want no point of handlers and an hour of the node, have %d handlers, and room for %d points", len(h.handlers), cap(h.points))
	}
}
