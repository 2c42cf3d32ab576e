package postgres

import (
	"testing"
	"time"
)

// A look during which somebody stood still does not put off the next look at all.
func TestPaceIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for cost, want := range map[time.Duration]time.Duration{
		time.Millisecond: paceLeast, 100 * time.Millisecond: 2 * time.Second, time.Hour: paceMost,
	} {
		var p pace
		p.took(now, cost)
		if p.isDue(now.Add(want-1)) || !p.isDue(now.Add(want)) {
			t.Errorf("a look took %v: want the next one after %v, have %v", cost, want, p.next.Sub(now))
		}
	}
	h, l := horizon{hears: true, from: position{at: now}}, look{from: headOfQueue, lowered: endOfQueue, began: now.Add(-time.Hour)}
	h.found(&l, position{rank: 1})
	if !h.all.isDue(time.Now().Add(paceMost)) {
		t.Errorf("want a look at all within %v, have %v", paceMost, h.all.next)
	}
}
