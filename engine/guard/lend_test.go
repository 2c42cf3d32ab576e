package guard_test

import (
	"math"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/core"
	"procaas/engine/guard"
	"procaas/engine/planner"

	"pgregory.net/rapid"
)

// A club is some nodes that share a limit of 20 calls a second, and a clock.
type club struct {
	step   *planner.Step
	nodes  []*guard.Guard
	now    time.Time
	splits guard.Splits // as the store has them
	calls  []time.Time
}

const clubLimit = 20

func newClub(nodes int) *club {
	c := &club{now: time.Unix(1_800_000_000, 0), step: &planner.Step{Path: "p/s/h", StagePath: "p/s", Handler: &tree.Handler{
		RateLimit: &tree.RateLimit{Rate: datum.Rate{Count: clubLimit, Per: time.Second}, Burst: 1},
	}}}
	for range nodes {
		c.nodes = append(c.nodes, new(guard.Guard))
	}
	for _, g := range c.nodes {
		g.Share(nodes, c.now)
	}
	c.pass(2*time.Second, nil) // until all are settled
	c.calls = nil
	return c
}

// pass lets a time pass, in which calls come to nodes, so many a second. Each node looks four times a second.
func (c *club) pass(d time.Duration, rates map[int]int) {
	const tick = 10 * time.Millisecond
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(tick) {
		at := c.now.UnixMilli()
		for i, g := range c.nodes {
			if every := int64(1000 / max(rates[i], 1)); rates[i] > 0 && at%every < 10 {
				if v := g.Verdict(core.Ask{Step: c.step, Ref: "p/s/h"}, &guard.Pass{}, nil, c.now); v.Hold.IsZero() {
					c.calls = append(c.calls, c.now)
				} else if v.Hold.Sub(c.now) <= guard.ShortHold { // its place is kept for it
					c.calls = append(c.calls, v.Hold)
				}
			}
			if at%250 == int64(i)*30/10*10 {
				c.look(i)
			}
		}
	}
}

// look lets a node look at the splits and write what it thinks.
func (c *club) look(i int) {
	if next, changed := c.nodes[i].Lend(int64(i+1), c.splits, c.now); changed {
		c.splits = next
	}
}

// rate is how many calls a second began in the last time.
func (c *club) rate(d time.Duration) float64 {
	n := 0
	for _, at := range c.calls {
		if !at.Before(c.now.Add(-d)) && at.Before(c.now) {
			n++
		}
	}
	return float64(n) / d.Seconds()
}

// sum is what the parts of all come to.
func (c *club) sum() (sum float64) {
	for i := range c.nodes {
		share, _ := c.nodes[i].Part("p/s/h")
		sum += share
	}
	return sum
}

func TestNodesLendWhatTheyDoNotUse(t *testing.T) {
	t.Parallel()
	c := newClub(2)
	c.pass(time.Second, map[int]int{0: 50})
	c.pass(5*time.Second, map[int]int{0: 50})
	if rate := c.rate(5 * time.Second); rate < 18 || rate > 21 {
		t.Errorf("want nearly the whole limit for the one that has calls, a second later, have %g/s", rate)
	}
	c.pass(2*time.Second, map[int]int{0: 50, 1: 50})
	c.pass(5*time.Second, map[int]int{0: 50, 1: 50})
	for i := range c.nodes {
		if share, _ := c.nodes[i].Part("p/s/h"); math.Abs(share-0.5) > 0.05 {
			t.Errorf("want half of the limit for each when both have calls, node %d has %g", i, share)
		}
	}
	if rate := c.rate(5 * time.Second); rate < 18 || rate > 21 {
		t.Errorf("want the limit used, have %g/s", rate)
	}
	c.pass(2*time.Second, map[int]int{1: 50})
	c.pass(5*time.Second, map[int]int{1: 50})
	if rate := c.rate(5 * time.Second); rate < 18 || rate > 21 {
		t.Errorf("want it lent to the other one now, have %g/s", rate)
	}
}

// Calls that come two at a time have to wait although the part of their node is large enough.
func TestCallsThatComeTogetherTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	c := newClub(2)
	for range 50 {
		for range 2 {
			c.pass(10*time.Millisecond, map[int]int{0: 100, 1: 100})
		}
		c.pass(480*time.Millisecond, map[int]int{0: 50}) // 4 a second on the other one
	}
	if rate := c.rate(10 * time.Second); rate < 18 || rate > 21 {
		t.Errorf("want the limit used, have %g/s", rate)
	}
}

// When a node has gone, the others wait until all know it, and then share anew.
func TestLoansEndWhenNodesComeOrGo(t *testing.T) {
	t.Parallel()
	c := newClub(3)
	c.pass(2*time.Second, map[int]int{0: 50})
	for i, g := range c.nodes[:2] { // one by one, as their beats tell
		g.Share(2, c.now)
		if sum := c.sum(); sum > 1.001 {
			t.Errorf("node %d knows: want no more than the limit, have %g of it", i, sum)
		}
		c.pass(700*time.Millisecond, nil)
	}
	c.nodes = c.nodes[:2]
	c.pass(3*time.Second, map[int]int{0: 50})
	if sum := c.sum(); math.Abs(sum-1) > 0.001 {
		t.Errorf("want the limit shared by two, have %g of it", sum)
	}
	if share, _ := c.nodes[0].Part("p/s/h"); share < 0.9 {
		t.Errorf("want the busy one to have nearly all, have %g", share)
	}
}

// Whatever comes to which node, the parts never come to more than the limit; and of the calls, no
// more begin in any second than the limit and what the pages allow in addition: a call at once for each
// node, and a second's worth while parts move.
func TestLoansNeverExceedTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClub(rapid.IntRange(2, 4).Draw(t, "nodes"))
		for range rapid.IntRange(1, 6).Draw(t, "phases") {
			rates := map[int]int{}
			for i := range c.nodes {
				rates[i] = rapid.SampledFrom([]int{0, 1, 5, 50}).Draw(t, "rate")
			}
			for range rapid.IntRange(1, 12).Draw(t, "quarters") {
				c.pass(250*time.Millisecond, rates)
				if sum := c.sum(); sum > 1.001 {
					t.Fatalf("want no more than the limit, have %g of it", sum)
				}
			}
		}
		for _, from := range c.calls {
			n := 0
			for _, at := range c.calls {
				if !at.Before(from) && at.Before(from.Add(time.Second)) {
					n++
				}
			}
			if most := 2*clubLimit + len(c.nodes) + 1; n > most {
				t.Fatalf("want at most %d calls in a second, have %d", most, n)
			}
		}
	})
}

// A node that has all limits for itself need not look at them until others come.
func TestANodeAloneSharesNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var g guard.Guard
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	g.Share(1, now)
	g.Lend(1, nil, now)
	if !g.SharesNothing() {
		t.Error("alone: want nothing shared")
	}
	news := g.Regrouped()
	g.Share(1, now)
	if isClosed(news) {
		t.Error("the same nodes: want no news")
	}
	g.Share(2, now)
	if !isClosed(news) || g.SharesNothing() {
		t.Error("a second node: want news, and limits shared")
	}
	now = now.Add(2 * time.Second)
	g.Lend(1, guard.Splits{"p/s/h": {Nodes: 2, Parts: map[int64]guard.Part{1: {Share: 0.2}, 2: {Share: 0.8}}}}, now)
	news = g.Regrouped()
	g.Share(1, now)
	if !isClosed(news) || g.SharesNothing() {
		t.Error("the second node has left: want news, and its part kept until it has settled")
	}
	g.Lend(1, nil, now.Add(time.Minute))
	if !g.SharesNothing() {
		t.Error("after that: want nothing shared")
	}
}
