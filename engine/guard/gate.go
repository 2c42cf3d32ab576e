package guard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A gate bounds how many calls are in flight at once: those of a handler, or of
// a service. Those that come when it is full stand in line by their age, for as
// long as the line is short; the others wait in the store.
//
// The gate of a service does more. It finds out how many calls the service bears,
// lets only some of the calls be repetitions, and keeps all back for as long as
// the service asks. A call that does not start does not count as an attempt.
type gate struct {
	name     string // the path of a handler, or a service
	recalled int    // the limit that it begins with; 0 where nothing is known

	mu    sync.Mutex // guards the following, and the spots
	terms Terms      // as asked last
	used  int
	line  []*spot // that wait, by their age
	turns int     // of those that stood in line

	adaptive *Gradient // nil: only what terms say bounds the calls
	calls    Budget
	closed   time.Time // until then, the service wants no calls
	repeated time.Time // the last repetition while calls fail

	// How the service does, for people.
	lastEnd     time.Time // of a call that told something
	badFrom     time.Time // the end of the first call that has failed since one succeeded; zero when none has
	failingFrom time.Time // since when hardly any call succeeds; zero while they do
	lastError   string
}

// Terms is what a gate goes by.
type Terms struct {
	most    int     // calls in flight; 0 for no bound but that of adaptive
	adapts  bool    // fewer, when the service cannot bear as many
	repeats float64 // the share of calls that may be repetitions
	calm    time.Duration
	nodes   int // that share the service
}

const (
	// fewWaiting is how many calls may always stand in line, manyWaiting how many
	// when they will not have to for long. They keep other runs out of memory.
	fewWaiting, manyWaiting = 32, 128

	// newShare is what new work gets while old work waits: each so many-th turn,
	// and that part of the line.
	newShare = 4

	// longestClosed is for how long a service is believed that wants no calls at
	// all. Then one finds out whether it has changed its mind.
	longestClosed = time.Minute
)

// A spot is where a call stands at a gate. The zero spot stands nowhere.
type spot struct {
	age     time.Time // since when the call waits
	repeats bool      // the call is a repetition

	gate  *gate
	state spotState
	wake  func() // told when the state changes; may be nil

	started time.Time // when it was let in
	counted *Gradient // that it has started in
	probes  bool      // it is made to find out whether the service is back
}

// A spotState says where a call is.
type spotState int

const (
	spotInLine spotState = iota
	spotInside           // the call may start
	spotOut              // the line is too long for it
)

// enter takes a place at the gate for a spot. It is not told where it is then, but
// of all that changes later.
func (g *gate) enter(s *spot, terms Terms, wake func(), now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.terms != terms {
		g.heed(terms)
	}
	s.gate, s.state, s.wake = g, spotInLine, nil
	at, _ := slices.BinarySearchFunc(g.line, s, func(a, b *spot) int { return a.age.Compare(b.age) })
	g.line = slices.Insert(g.line, at, s)
	g.move(now)
	s.wake = wake
}

// heed takes terms over.
func (g *gate) heed(t Terms) {
	g.terms = t
	if !t.adapts {
		g.adaptive = nil
		return
	}
	if g.adaptive == nil {
		g.adaptive = NewGradient(g.recalled)
	}
	g.adaptive.Bound(cmp.Or(t.most, highestLimit), t.calm, probePause*time.Duration(t.nodes))
}

// look returns where a spot is, when to look again at the latest, and whether the gate lets calls through.
func (g *gate) look(s *spot, now time.Time) (state spotState, again time.Time, moves bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.state == spotInLine {
		g.move(now)
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
	return s.state, again, g.moves(now)
}

// move lets in whom it may, and sends those away for whom the line is too long.
func (g *gate) move(now time.Time) {
	for {
		i := g.next(now)
		if i < 0 {
			break
		}
		g.admit(g.line[i], now)
		g.line = slices.Delete(g.line, i, i+1)
	}
	if len(g.line) <= fewWaiting {
		return
	}
	for longest := g.longest(now); len(g.line) > longest; {
		// Those that wait longest stay, and the newest ones.
		i := len(g.line) - 1 - longest/newShare
		g.line[i].tell(spotOut)
		g.line = slices.Delete(g.line, i, i+1)
	}
}

// next finds the call whose turn it is, and takes the turn; -1 for none. It is
// mostly that which waits longest.
func (g *gate) next(now time.Time) int {
	if len(g.line) == 0 || g.closed.After(now) || g.terms.most > 0 && g.used >= g.terms.most {
		return -1
	}
	i := g.first(now)
	if i < 0 || g.adaptive != nil && !g.adaptive.Start(now) {
		return -1
	}
	if len(g.line) > 1 {
		g.turns++
	}
	return i
}

// first finds the first in line whose turn it may be: repetitions have to stand
// back when there have been many.
func (g *gate) first(now time.Time) int {
	from, to, step := 0, len(g.line), 1
	if g.turns%newShare == newShare-1 {
		from, to, step = to-1, -1, -1
	}
	repeats := 0 // not known
	for i := from; i != to; i += step {
		if !g.line[i].repeats {
			return i
		}
		if repeats == 0 {
			repeats = -1
			if g.mayRepeat(now) {
				repeats = 1
			}
		}
		if repeats > 0 {
			return i
		}
	}
	return -1
}

// mayRepeat reports whether a repetition may start. While all fails, repetitions
// would only use up the attempts of their runs.
func (g *gate) mayRepeat(now time.Time) bool {
	if !g.calls.allows(g.terms.repeats, g.terms.nodes, now) {
		return false
	}
	a := g.adaptive
	return a == nil || !a.Failing() || a.Down() || now.Sub(g.repeated) >= a.pause
}

// admit lets a call in whose turn has been taken.
func (g *gate) admit(s *spot, now time.Time) {
	g.used++
	g.calls.count(s.repeats, now)
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

// longest is how many may stand in line: as many as have their turn within a
// second.
func (g *gate) longest(now time.Time) int {
	most := max(2*g.limit(), fewWaiting)
	if !g.moves(now) {
		return most
	}
	rate, known := g.calls.rate(now)
	if !known {
		rate = manyWaiting
	}
	return max(most, min(rate, manyWaiting))
}

// moves reports whether the gate lets calls through.
func (g *gate) moves(now time.Time) bool {
	return !g.closed.After(now) && (g.adaptive == nil || !g.adaptive.Failing())
}

// limit is how many calls may be under way at present.
func (g *gate) limit() int {
	if g.adaptive != nil {
		return g.adaptive.Limit()
	}
	return g.terms.most
}

// A CallEnd is what the end of a call tells about its service.
type CallEnd struct {
	Verdict callVerdict
	Kind    string        // of calls that take about the same time
	Took    time.Duration // 0: that tells nothing
	pause   time.Duration // the service wants no calls for so long
	err     string        // what a call that failed told
}

// A callVerdict says whether a service did what it should.
type callVerdict int

// What became of a call.
const (
	callUnmade callVerdict = iota // the call has not started
	CallMute                      // it tells nothing about the service
	CallGood
	callBad
)

// leave gives the place back, wherever it is. The zero spot has none. It reports whether
// the call was let in to find out about its service.
func (s *spot) leave(end CallEnd, now time.Time) (probe bool) {
	g := s.gate
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.gate = nil // so that leaving twice gives one place back
	switch s.state {
	case spotInLine:
		if i := slices.Index(g.line, s); i >= 0 {
			g.line = slices.Delete(g.line, i, i+1)
		}
	case spotInside:
		g.used--
		g.learn(s, end, now)
	}
	g.move(now)
	return s.probes
}

// learn takes in what a call came to.
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
		if g.lastEnd, g.lastError = now, end.err; g.badFrom.IsZero() {
			g.badFrom = now
		}
	}
	switch {
	case s.counted == nil:
	case end.Verdict == CallGood || end.Verdict == callBad:
		s.counted.End(end.Kind, end.Verdict == CallGood, end.Took, now)
	default:
		s.counted.Drop()
	}
}

// Appetite is how many runs the gate could do with that wait in the store. Moves
// tells whether it lets calls through, so that it will soon have room for more.
func (g *gate) Appetite(now time.Time) (room int, moves bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	longest := g.longest(now)
	if 2*len(g.line) > longest {
		return 0, g.moves(now)
	}
	return longest - len(g.line), g.moves(now)
}

// Effects lists what keeps calls from starting at once, for people.
func (g *gate) Effects(now time.Time) []string {
	g.mu.Lock()
	waits := len(g.line) > 0 || g.closed.After(now) || g.adaptive != nil && g.adaptive.Down()
	g.mu.Unlock()
	if !waits {
		return nil
	}
	return []string{g.why(now)}
}

// why tells people what a call waits for.
func (g *gate) why(now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed.After(now):
		return fmt.Sprintf("%s wants no calls until %s", g.name, g.closed.UTC().Format(time.RFC3339))
	case g.adaptive != nil && g.adaptive.Down():
		return fmt.Sprintf("calls of %s fail; one at a time finds out when it is back", g.name)
	case g.terms.most > 0 && g.used >= g.terms.most:
		return fmt.Sprintf("waits for one of %d calls of %s under way at once to end", g.terms.most, g.name)
	}
	return "waits for its turn to call " + g.name
}

// spare is how many more calls the gate lets begin soon, without a line that does not go away.
// A service that is down bounds nothing: what comes to it waits as all others do.
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
