package guard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"procaas/engine/model"
)

// A gate limits the calls in flight of a handler or of a service. When it is full, calls queue by
// age as long as the queue is short, and owners, pipelines and sources take turns. Further runs wait
// in the store.
//
// The gate of a service does more. It finds out how many calls the service can take at once, limits
// the share of retries, and holds all calls for as long as the service asks. A call that does not
// start does not count as an attempt.
type gate struct {
	name     string          // the path of a handler, or a service
	recalled int             // the initial limit; 0 if unknown
	moved    chan<- struct{} // gets a signal when the limit adapts
	slots    int             // runs that the node works on at once; 0 if unknown

	mu      sync.Mutex // guards the following, and the spots
	terms   Terms      // as last requested
	used    int
	line    []*spot // waiting calls, by age
	retries int     // of the waiting calls
	lanes   shares  // of waiting calls and calls in flight
	turns   int     // number of turns of calls that waited
	starts  int     // number of calls that have started

	// What a call waits for, for people. Thousands may ask.
	whyTurn, whyFull, whyDown string

	adaptive *Gradient // nil: only terms limit the calls
	calls    Budget
	closed   time.Time // the service accepts no calls until then
	repeated time.Time // time of the last retry while calls fail

	// The state of the service, for people:
	lastEnd     time.Time // end of the last call that said something about the service
	badFrom     time.Time // end of the first failed call since the last success; zero if none has failed
	failingFrom time.Time // since when hardly any call succeeds; zero otherwise
	lastError   string
}

// Terms are the limits of a gate.
type Terms struct {
	most    int     // calls in flight; 0 for no limit except adaptive
	adapts  bool    // the limit adapts to the service
	repeats float64 // the share of calls that may be retries
	calm    time.Duration
	nodes   int // nodes that share the service
}

const (
	// fewWaiting is how many calls may always queue, on a node with as many slots as usual.
	// manyWaiting is how many may queue if the queue moves fast. They bound the runs in memory.
	fewWaiting, manyWaiting = 32, 128

	// newShare gives new work every fourth turn, and a fourth of the queue, while old work waits.
	newShare = 4

	// longestClosed is how long a gate obeys a service that accepts no calls at all. After that it
	// tries a call.
	longestClosed = time.Minute
)

// A spot is the place of a call at a gate. The zero spot has no place.
type spot struct {
	age     time.Time // since when the call waits
	repeats bool      // the call is a retry
	lost    bool      // the call was in flight when its node died, and has not waited since
	lane    model.Lane
	cost    float64 // 1 divided by the weight of its pipeline

	gate  *gate
	share *share // of its lane at the gate
	state spotState
	wake  func() // called when the state changes; may be nil

	started time.Time // when it was admitted
	counted *Gradient // where the call is counted
	probes  bool      // the call tests whether the service is back
}

// A spotState is the state of a spot.
type spotState int

const (
	spotInLine spotState = iota
	spotInside           // the call may start
	spotOut              // the queue is too long
)

// enter takes a place at the gate for a spot. wake reports only later changes of its state.
func (g *gate) enter(s *spot, terms Terms, wake func(), now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terms != terms {
		g.heed(terms)
	}
	if g.lanes == nil {
		g.lanes = shares{}
	}
	g.lanes.forget()
	s.gate = g
	s.state = spotInLine
	s.wake = nil
	s.share = g.lanes.at(2, s.lane)
	s.come()
	at, _ := slices.BinarySearchFunc(g.line, s, func(a, b *spot) int { return a.age.Compare(b.age) })
	g.line = slices.Insert(g.line, at, s)
	if s.repeats {
		g.retries++
	}
	if s.lost && g.adaptive != nil {
		g.adaptive.TakeOver()
	}
	g.move(now)
	s.wake = wake
}

// leaveLine removes a waiting call.
func (g *gate) leaveLine(i int) {
	if g.line[i].repeats {
		g.retries--
	}
	g.line = slices.Delete(g.line, i, i+1)
}

// heed sets the terms.
func (g *gate) heed(t Terms) {
	if g.terms.most != t.most || g.whyTurn == "" {
		g.whyTurn = "waits for its turn to call " + g.name
		g.whyFull = fmt.Sprintf("waits for one of %d calls of %s under way at once to end", t.most, g.name)
		g.whyDown = "calls of " + g.name + " fail; one at a time finds out when it is back"
	}
	g.terms = t
	if !t.adapts {
		g.adaptive = nil
		return
	}
	if g.adaptive == nil {
		g.adaptive = NewGradient(g.recalled)
	}
	g.adaptive.Bound(cmp.Or(t.most, max(highestLimit, g.slots)), t.calm, probePause*time.Duration(t.nodes))
}

// look returns the state of a spot. For one that waits, it also returns when to look again at the
// latest, whether the gate lets calls through, and why for people.
func (g *gate) look(s *spot, now time.Time) (state spotState, again time.Time, moves bool, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.state == spotInLine {
		g.move(now)
	}
	if s.state == spotInside {
		return s.state, again, moves, why
	}
	again = now.Add(ShortHold)
	if g.closed.After(now) && g.closed.Before(again) {
		again = g.closed
	}
	if g.adaptive != nil {
		if next := g.adaptive.Next(); next.After(now) && next.Before(again) {
			again = next
		}
	}
	return s.state, again, g.moves(now), g.why(now)
}

// move admits calls, and removes those for which the queue is too long.
func (g *gate) move(now time.Time) {
	for {
		i := g.next(now)
		if i < 0 {
			break
		}
		g.admit(g.line[i], now)
		g.leaveLine(i)
	}
	if len(g.line) <= g.few() {
		return
	}
	for longest := g.longest(now); len(g.line) > longest; {
		i := g.surplus()
		g.line[i].quit(false)
		g.line[i].tell(spotOut)
		g.leaveLine(i)
	}
}

// surplus returns the index of a call that leaves the queue, which is too long. It is one of the
// lane with the most calls, whose oldest calls stay, and the newest ones.
func (g *gate) surplus() int {
	var of []int
	for i, s := range g.line {
		c := 1
		if len(of) > 0 {
			c = s.share.compare(g.line[of[0]].share, byCalls)
		}
		switch first := len(of) == 0; {
		case first || c > 0:
			of = append(of[:0], i)
		case s.share == g.line[of[0]].share:
			of = append(of, i)
		}
	}
	return of[len(of)-1-len(of)/newShare]
}

// next returns the index of the next call and counts its turn, or -1. It is usually the oldest.
func (g *gate) next(now time.Time) int {
	if len(g.line) == 0 || g.closed.After(now) || g.terms.most > 0 && g.used >= g.terms.most {
		return -1
	}
	if g.adaptive != nil && !g.adaptive.HasRoom(now) {
		return -1
	}
	i := g.first(now)
	if i < 0 {
		return -1
	}
	if g.adaptive != nil {
		g.adaptive.Start(now)
	}
	if len(g.line) > 1 {
		g.turns++
	}
	return i
}

// first returns the call in the queue that may go next, of the lane with the fewest calls in flight.
// Retries stand back if there have been many.
func (g *gate) first(now time.Time) int {
	may := g.retries == 0 || g.mayRepeat(now)
	if !may && g.retries == len(g.line) {
		return -1
	}
	from, to, step := 0, len(g.line), 1
	if g.turns%newShare == newShare-1 {
		from, to, step = to-1, -1, -1
	}
	best := -1
	for i := from; i != to; i += step {
		s := g.line[i]
		if (may || !s.repeats) && (best < 0 || s.share.compare(g.line[best].share, byTurn) < 0) {
			best = i
		}
	}
	return best
}

// mayRepeat reports whether a retry may start. While all calls fail, a retry would only use up
// attempts.
func (g *gate) mayRepeat(now time.Time) bool {
	if !g.calls.allows(g.terms.repeats, g.terms.nodes, now) {
		return false
	}
	a := g.adaptive
	return a == nil || !a.Failing() || a.Down() || now.Sub(g.repeated) >= a.pause
}

// admit admits a call whose turn was counted.
func (g *gate) admit(s *spot, now time.Time) {
	g.used++
	g.starts++
	g.calls.count(s.repeats, now)
	s.start(g.starts)
	s.started, s.counted = now, g.adaptive
	if a := g.adaptive; a != nil && a.Failing() {
		s.probes = s.repeats || a.Down()
		if s.repeats {
			g.repeated = now
		}
	}
	s.tell(spotInside)
}

func (s *spot) tell(state spotState) {
	s.state = state
	if s.wake != nil {
		s.wake()
	}
}

// longest returns the longest allowed queue: as many calls as start within a second. At least half
// of the slots that the service does not use are for runs that do not call it.
func (g *gate) longest(now time.Time) int {
	most := 2 * g.limit()
	if g.moves(now) {
		rate, known := g.calls.rate(now)
		if !known {
			rate = manyWaiting
		}
		most = max(most, min(rate, manyWaiting))
	}
	if g.slots > 0 {
		most = min(most, (g.slots-g.limit())/2)
	}
	return max(most, g.few())
}

// few returns how many calls may always queue.
func (g *gate) few() int {
	if g.slots == 0 {
		return fewWaiting
	}
	return min(fewWaiting, max(1, g.slots/8))
}

// moves reports whether the gate lets calls through.
func (g *gate) moves(now time.Time) bool {
	return !g.closed.After(now) && (g.adaptive == nil || !g.adaptive.Failing())
}

// limit returns how many calls may be in flight now.
func (g *gate) limit() int {
	if g.adaptive != nil {
		return g.adaptive.Limit()
	}
	return g.terms.most
}

// A CallEnd is the outcome of a call with regard to its service.
type CallEnd struct {
	Verdict callVerdict
	Kind    string        // groups calls that take about the same time
	Took    time.Duration // 0: unknown
	pause   time.Duration // how long the service asks to make no calls
	err     string        // error of a failed call
}

// A callVerdict says whether a service worked correctly.
type callVerdict int

// These are the verdicts on a call.
const (
	callUnmade callVerdict = iota // the call has not started
	CallMute                      // it says nothing about the service
	CallGood
	callBad
)

// leave returns the place. The zero spot has none. It reports whether the call was a probe of its
// service.
func (s *spot) leave(end CallEnd, now time.Time) (probe bool) {
	g := s.gate
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.gate = nil // so that a second call of leave does nothing
	switch s.state {
	case spotInLine:
		if i := slices.Index(g.line, s); i >= 0 {
			g.leaveLine(i)
		}
		s.quit(false)
	case spotInside:
		g.used--
		s.quit(true)
		g.learn(s, end, now)
	}
	g.move(now)
	return s.probes
}

// learn records the outcome of a call.
func (g *gate) learn(s *spot, end CallEnd, now time.Time) {
	if end.pause > 0 {
		if until := now.Add(min(end.pause, longestClosed)); until.After(g.closed) {
			g.closed = until
		}
	}
	switch end.Verdict {
	case callUnmade:
		g.calls.withdraw(s.repeats, s.started)
	case CallGood:
		g.calls.End(true, now)
		g.lastEnd, g.badFrom = now, time.Time{}
	case callBad:
		g.calls.End(false, now)
		g.lastEnd, g.lastError = now, end.err
		if g.badFrom.IsZero() {
			g.badFrom = now
		}
	}
	switch {
	case s.counted == nil:
	case end.Verdict == CallGood || end.Verdict == callBad:
		before := s.counted.Limit()
		s.counted.End(end.Kind, end.Verdict == CallGood, end.Took, now)
		if s.counted.Limit() == before {
			return
		}
		select {
		case g.moved <- struct{}{}:
		default: // a signal is pending
		}
	default:
		s.counted.Drop()
	}
}

// Appetite returns how many runs that wait in the store the gate can take. moves reports whether it
// lets calls through, so that it will soon have room for more.
func (g *gate) Appetite(now time.Time) (room int, moves bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := g.longest(now)
	if 2*len(g.line) > longest {
		return 0, g.moves(now)
	}
	return longest - len(g.line), g.moves(now)
}

// Effects lists for people what delays calls.
func (g *gate) Effects(now time.Time) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 && !g.closed.After(now) && (g.adaptive == nil || !g.adaptive.Down()) {
		return nil
	}
	return []string{g.why(now)}
}

// why describes for people what a call waits for.
func (g *gate) why(now time.Time) string {
	switch {
	case g.closed.After(now):
		return fmt.Sprintf("%s wants no calls until %s", g.name, g.closed.UTC().Format(time.RFC3339))
	case g.adaptive != nil && g.adaptive.Down():
		return g.whyDown
	case g.terms.most > 0 && g.used >= g.terms.most:
		return g.whyFull
	}
	return g.whyTurn
}

// spare returns how many more calls may begin soon without a lasting queue. A service that is down
// does not limit this, because its calls wait like all others.
func (g *gate) spare(terms Terms, now time.Time) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terms != terms {
		g.heed(terms)
	}
	limit := g.limit()
	if limit == 0 || !g.moves(now) {
		return math.MaxInt
	}
	rate, _ := g.calls.rate(now)
	return max(0, limit+rate*int(Beat)/int(time.Second)-g.used-len(g.line))
}
