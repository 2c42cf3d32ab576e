package guard

import (
	"cmp"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A Guard decides whether a handler may run now: whether a control holds it, and what the limits of
// the definition and of controls say. Limits are for all nodes together. Each node has a part of
// them, and lends what it does not use.
type Guard struct {
	Slots int          // runs that the node works on at once; 0 if unknown. Set it before use
	Nodes atomic.Int32 // live nodes; 0 if unknown
	since atomic.Int64 // when all nodes know of this one, in nanoseconds since 1970; 0 for the first node

	lent lending

	mu      sync.RWMutex       // guards the following, but not what it points to
	buckets map[string]*bucket // by path
	gates   map[string]*gate   // by the path of a handler, or by service

	recalled map[string]int // in-flight limits of services from before this process
	moved    chan struct{}  // shared with the gates; see Moved
}

// ShortHold is how long a run may wait for its turn in memory and keep its place. A run that has to
// wait longer returns its place.
const ShortHold = time.Second

// A Pass has a run's places in the queues of limits, so that asking again does not take another
// place. It belongs to the goroutine of the run.
type Pass struct {
	Wake       func()            // called when a gate admits the run
	Age        time.Time         // since when the run is due
	Lane       model.Lane        // what the run has its share of the gates from
	Weight     int               // of its pipeline; 0 is 1
	Multiplies bool              // it has started a run in its loop, so each further one multiplies it
	Tokens     Tokens            // of limits by value; nil if there are none
	places     map[string]*place // by [core.Attempt.Ref]
	spare      *place            // the last one that was returned, for the next call; nil for none
	tokens     map[string]*token // that no call has used yet, by [core.Attempt.Ref]
	slack      int               // how often a call could not start because its token was too old
}

// A place is the place of a call that waits or is in flight.
type place struct {
	until  time.Time // when to ask again
	mine   bool      // at until, its turn has come
	passed bool      // the rate limits have admitted it
	cause  string
	reason string
	people bool    // it waits for an operator's limit
	turn   bool    // it waits for another limit, not for the budget of a loop
	spots  [2]spot // at the gates of the handler and of the service
}

// verdict returns the verdict for a waiting call.
func (pl *place) verdict() core.Verdict {
	return core.Verdict{Hold: pl.until, Cause: pl.cause, Reason: pl.reason, People: pl.people, Turn: pl.turn}
}

// at returns the place of a call.
func (p *Pass) at(ref string) *place {
	if p.places == nil {
		p.places = map[string]*place{}
	}
	pl := p.places[ref]
	if pl == nil {
		pl = p.spare
		p.spare = nil
		if pl == nil {
			pl = &place{}
		}
		p.places[ref] = pl
	}
	return pl
}

// Leave returns the places of a call that does not start.
func (p *Pass) Leave(ref string, now time.Time) {
	p.leaveToken(ref)
	p.leavePlace(ref, now)
}

func (p *Pass) leavePlace(ref string, now time.Time) { p.End(ref, CallEnd{}, now) }

// LeaveAll returns the places of a handler, including all items of its for-each.
func (p *Pass) LeaveAll(path string, now time.Time) {
	for ref := range p.places {
		if model.IsRefOf(ref, path) {
			p.leavePlace(ref, now)
		}
	}
	for ref := range p.tokens {
		if model.IsRefOf(ref, path) {
			p.leaveToken(ref)
		}
	}
}

// End returns the places of a call that has ended. It reports whether the call was a probe of its
// service.
func (p *Pass) End(ref string, end CallEnd, now time.Time) (probe bool) {
	pl := p.Take(ref)
	if pl == nil {
		return false
	}
	probe = pl.End(end, now)
	*pl = place{}
	p.spare = pl
	return probe
}

// Take removes the place of a call from the pass, so that the call may outlive the run.
func (p *Pass) Take(ref string) *place {
	pl := p.places[ref]
	delete(p.places, ref)
	return pl
}

// End is [Pass.End] for a place from Take. The receiver may be nil.
func (pl *place) End(end CallEnd, now time.Time) (probe bool) {
	if pl == nil {
		return false
	}
	probe = pl.spots[1].leave(end, now)
	end.pause = 0 // only for the service
	pl.spots[0].leave(end, now)
	return probe
}

// Close returns all places of the run. The outcomes of its calls are unknown.
func (p *Pass) Close(now time.Time) {
	for ref := range p.places {
		p.End(ref, CallEnd{Verdict: CallMute}, now)
	}
	for ref := range p.tokens {
		p.leaveToken(ref)
	}
}

// A rule is a rate limit that applies to a handler.
type rule struct {
	path  string // the path that it limits
	rate  float64
	burst float64
	whole float64 // the rate that nodes share; 0 for a rate that they do not share
	pace  float64 // rate at which delayed runs come back
	skip  bool
	live  *liveControl // nil: a limit of the definition
	spec  *tree.RateLimit

	loop string // name of the budget of a loop; empty for others
	free bool   // it takes nothing while something is left
}

// name returns the name of the bucket.
func (r *rule) name() string { return cmp.Or(r.loop, r.path) }

func (r *rule) reason() string {
	switch {
	case r.loop != "":
		return loopReason()
	case r.live != nil:
		return r.live.over
	}
	return rateReason(r.spec)
}

func (r *rule) cause() string {
	switch {
	case r.loop != "":
		return r.path + CauseLoop
	case r.live != nil:
		return r.live.limitCause
	}
	return r.path + causeRate
}

// Verdict decides about one call of a run.
func (g *Guard) Verdict(a core.Ask, p *Pass, c *Controls, now time.Time) core.Verdict {
	if l := c.Holds(a.Step, now); l != nil {
		p.Leave(a.Ref, now)
		return core.Verdict{Hold: askAgain(now), Cause: l.holdCause, Reason: l.off, People: true}
	}
	if v, ok := g.token(a, p, now); !ok {
		return v
	}
	if v, ok := g.turn(a.Step, a.Ref, p, c, now); !ok {
		return v
	}
	v := g.enter(a, p, now)
	if v == (core.Verdict{}) {
		v, _ = g.exchange(a, p, now)
	}
	return v
}

// askAgain is when a run that a switch holds looks again. It is woken when the switch is lifted or
// ends, as fast as later handlers can take it. So this is for runs that were missed.
func askAgain(now time.Time) time.Time { return now.Add(24 * time.Hour) }

// turn asks the rate limits. ok is false if the handler may not run now.
func (g *Guard) turn(s *planner.Step, ref string, p *Pass, c *Controls, now time.Time) (v core.Verdict, ok bool) {
	if pl := p.places[ref]; pl != nil {
		if pl.passed {
			return core.Verdict{}, true
		}
		switch stale := pl.cause != "" && !c.InForce(pl.cause, now); {
		case !stale && pl.until.After(now):
			return pl.verdict(), false
		case !stale && pl.mine:
			return core.Verdict{}, true // the gates are asked next
		}
		p.leavePlace(ref, now)
	}
	var rules [3]rule
	n := g.rules(s, c, now, &rules)
	if n == 0 && s.Handler.LeadsBack { // a rate limit replaces the budget of a loop
		rules[0], n = g.loopRule(s, p), 1
	}
	if n == 0 {
		return core.Verdict{}, true
	}
	return g.reserve(s, ref, p, rules[:n], now)
}

// rules returns the rate limits that apply to a handler, at most one per level.
func (g *Guard) rules(s *planner.Step, c *Controls, now time.Time, out *[3]rule) int {
	n := 0
	own := s.Handler.RateLimit
	if hasOwnValue(own) {
		own = nil // it is in the store; see token
	}
	for i, l := range c.above(s) {
		switch {
		case l.limits(now) && !(i == 0 && own != nil && own.Rate.PerSecond() < l.rate.PerSecond()):
			share, hope := g.Part(l.path)
			rate := l.rate.PerSecond() * share
			out[n] = rule{
				path: l.path, rate: rate, burst: max(1, rate/10), whole: l.rate.PerSecond(), pace: l.rate.PerSecond() * hope, skip: l.Over == overSkip, live: l,
			}
			n++
		case i == 0 && own != nil:
			share, hope := g.Part(s.Path)
			rate := own.Rate.PerSecond()
			burst := burstOf(own)
			out[n] = rule{
				path: s.Path, rate: rate * share, burst: max(1, burst*share), whole: rate, pace: rate * hope, skip: own.Over == overSkip,
				spec: own,
			}
			n++
		}
	}
	return n
}

// Spare returns how many more calls of a handler may begin soon, ignoring the gate.
func (g *Guard) Spare(s *planner.Step, besides string, c *Controls, now time.Time) int {
	room := math.MaxInt
	for level := range 2 {
		name, terms, ok := g.terms(s, level)
		if ok && name != besides && !s.Computes() {
			room = min(room, g.Gate(name).spare(terms, now))
		}
	}
	var rules [3]rule
	for _, r := range rules[:g.rules(s, c, now, &rules)] {
		room = min(room, g.Bucket(r.path).left(now, r.rate, r.burst))
	}
	return room
}

// reserve takes a place in all limits, or returns until when to wait.
func (g *Guard) reserve(s *planner.Step, ref string, p *Pass, rules []rule, now time.Time) (v core.Verdict, ok bool) {
	var delay time.Duration
	var worst *rule
	skip := false
	for i := range rules {
		r := &rules[i]
		b := g.Bucket(r.name())
		b.share(r.whole)
		if d := b.Reserve(now, r.rate, r.burst); d > 0 {
			skip = skip || r.skip
			if d > delay {
				delay, worst = d, r
			}
		}
	}
	if worst == nil {
		if rules[0].free {
			g.Bucket(rules[0].name()).giveBack()
		}
		return core.Verdict{}, true
	}
	skip = skip && !s.Handler.IsCritical()
	if skip || delay > ShortHold {
		p.leaveToken(ref)
		for i := range rules {
			g.Bucket(rules[i].name()).giveBack()
		}
	}
	if skip {
		return core.Verdict{Skip: true, Reason: worst.reason()}, false
	}
	pl := p.at(ref)
	pl.until = now.Add(delay)
	pl.mine = true
	pl.cause = worst.cause()
	pl.reason = worst.reason()
	pl.people = worst.live != nil
	pl.turn = !pl.people && worst.loop == ""
	if delay > ShortHold {
		pl.until, pl.mine = g.Bucket(worst.name()).sendAway(now, delay, worst.pace), false
	}
	return pl.verdict(), false
}

// enter asks the gates for places.
func (g *Guard) enter(a core.Ask, p *Pass, now time.Time) core.Verdict {
	s := a.Step
	if s.Computes() || s.Handler.MaxInFlight == 0 && s.Service == nil {
		return core.Verdict{}
	}
	pl := p.at(a.Ref)
	pl.passed = true
	for i := range pl.spots {
		name, terms, ok := g.terms(s, i)
		if !ok {
			continue
		}
		at, spot := g.Gate(name), &pl.spots[i]
		if spot.gate == nil {
			spot.age = p.Age
			spot.lost = a.Lost && !a.Waited
			spot.repeats = !a.Due.IsZero()
			spot.lane = p.Lane
			spot.cost = 1 / float64(max(1, p.Weight))
			if spot.repeats {
				spot.age = a.Due
			}
			at.enter(spot, terms, p.Wake, now)
		}
		state, again, moves, why := at.look(spot, now)
		if state == spotInside {
			continue
		}
		v := core.Verdict{Hold: again, Turn: moves, Reason: why, Patience: patience(s, i)}
		if state == spotOut {
			p.Leave(a.Ref, now)
			v.Hold, v.Cause = now.Add(longestOut), gateCause(name, s.Path)
		}
		return v
	}
	return core.Verdict{}
}

// Bucket returns the bucket of a path.
func (g *Guard) Bucket(path string) *bucket {
	g.mu.RLock()
	b := g.buckets[path]
	g.mu.RUnlock()
	if b != nil {
		return b
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.buckets == nil {
		g.buckets = map[string]*bucket{}
	}
	if g.buckets[path] == nil {
		g.buckets[path] = &bucket{}
		if !strings.HasSuffix(path, CauseLoop) { // a deployment must not take the budgets of loops
			g.buckets[path].from = g.since.Load()
		}
	}
	return g.buckets[path]
}

// Share sets the number of live nodes. A new node leaves the limits to the other nodes until they
// count it. Then it has no burst, because they have used it.
func (g *Guard) Share(nodes int, now time.Time) {
	before := int(g.Nodes.Swap(int32(nodes)))
	if before != nodes {
		g.lent.regroup(nodes, now)
	}
	if before == 0 && nodes > 1 {
		g.since.Store(now.Add(settling).UnixNano())
	}
}

// Gate returns the gate of a name.
func (g *Guard) Gate(name string) *gate {
	g.mu.RLock()
	at := g.gates[name]
	g.mu.RUnlock()
	if at != nil {
		return at
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates == nil {
		g.gates = map[string]*gate{}
	}
	if g.gates[name] == nil {
		g.gates[name] = &gate{name: name, recalled: g.recalled[name], moved: g.signal(), slots: g.Slots}
	}
	return g.gates[name]
}

// burstOf returns how many calls may start at once after a pause. 0 is one.
func burstOf(r *tree.RateLimit) float64 {
	if r.Burst > 0 {
		return float64(r.Burst)
	}
	return math.Floor(r.Rate.PerSecond())
}
