package guard

import (
	"sync"
	"testing"
	"time"
)

// A run that waits for its service may go away, since its handler is out of the flow,
// at the moment in which another one lets it in. The race detector sees whether both
// look at its place at once.
func TestRunsMayLeaveALineThatMoves(t *testing.T) {
	t.Parallel()
	g, began := &gate{}, time.Now()
	terms := Terms{most: 2, adapts: true, repeats: 1, calm: time.Second, nodes: 1}
	var runs sync.WaitGroup
	for range 8 {
		runs.Go(func() {
			for i := range 500 {
				now := began.Add(time.Duration(i) * time.Second) // by then a failing service is asked again
				p := Pass{Wake: func() {}}
				pl := p.at("work/a/one")
				g.enter(&pl.spots[1], terms, p.Wake, now)
				p.End("work/a/one", CallEnd{Verdict: callBad, Kind: "work/a/one"}, now)
			}
		})
	}
	runs.Wait()
	if g.used != 0 || len(g.line) != 0 {
		t.Errorf("want the gate empty when all have left, have %d inside and %d in line", g.used, len(g.line))
	}
}
