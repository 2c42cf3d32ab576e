package guard

import (
	"cmp"
	"time"
)

// A Gradient limits the calls of one service in flight, depending on their outcomes. It protects a
// service that is coming back from its callers. Calls wait for their turn, and none is lost. It
// reads no clock.
//
// While hardly any call succeeds, it lets through one call at a time with pauses, and so learns
// when the service is back. While many calls fail for reasons of their own, it keeps the limit,
// because fewer calls would not help. It starts low, and doubles with each round of calls until it
// is too much.
type Gradient struct {
	limit    float64
	most     int
	calm     time.Duration
	pause    time.Duration
	underway int
	last     time.Time // when the last call started

	// The current window:
	began time.Time
	good  int
	bad   int
	full  bool // the limit was reached
	taken int  // calls that were in flight when their node died

	bold bool // the limit comes from calls of a node that died, and no window has ended since

	probing bool // it has not found the limit of the service, and doubles with each round of calls
	failing bool // hardly any call of the last window has succeeded
	kinds   map[string]*callKind
}

// A callKind is a group of calls that normally take about the same time.
type callKind struct {
	normal time.Duration // the normal duration; 0 before it is known

	good int // successful calls in the current window
	took time.Duration
}

const (
	firstLimit  = 20
	lowestLimit = 1
	// highestLimit is how many runs a node drives at once at least by default, so it holds back none of
	// them. A node that drives more has a higher one.
	highestLimit = 256

	gradientWindow = 500 * time.Millisecond // shortest window
	gradientCalls  = 10                     // fewest calls in a window; or half of the limit
	gradientOldest = time.Hour              // a call that ends this much later says nothing

	cutBelow  = 0.1 // the limit is halved if a smaller share of the calls succeeds
	growAbove = 0.8
	tooSlow   = 2.5 // the limit is halved if calls take this many times their normal duration
	growth    = 1.25
	doubling  = 2 // growth until a limit is found

	probePause = 500 * time.Millisecond // between calls of a service that is down
)

// NewGradient makes a limit that has seen no calls. before is the initial limit, 0 if unknown.
func NewGradient(before int) *Gradient {
	return &Gradient{limit: float64(cmp.Or(before, firstLimit)), most: highestLimit, pause: probePause, kinds: map[string]*callKind{}, probing: true}
}

// Bound sets fixed bounds: at most most calls in flight, calls up to calm are never slow, and pause
// is the time between two calls of a service that is down. A zero value keeps the setting.
func (g *Gradient) Bound(most int, calm, pause time.Duration) {
	if most > 0 {
		g.most = most
		g.limit = min(g.limit, float64(most))
	}
	if calm > 0 {
		g.calm = calm
	}
	if pause > 0 {
		g.pause = pause
	}
}

// TakeOver makes room for a call that was in flight when its node died. The service had all such
// calls at once, so it gets them again at once, and recovery does not wait until a low limit has
// grown. The limit never exceeds their number for this reason. It does not rise while calls fail, nor
// while the service is coming back.
func (g *Gradient) TakeOver() {
	if g.failing || g.bad > 0 || g.limit < firstLimit {
		return
	}
	g.taken++
	if most := float64(min(g.taken, g.most)); most > g.limit {
		g.limit, g.bold = most, true
	}
}

// Limit returns how many calls may be in flight.
func (g *Gradient) Limit() int { return int(g.limit) }

// Failing reports whether hardly any call succeeds now.
func (g *Gradient) Failing() bool {
	return g.failing || g.good+g.bad >= gradientCalls && g.ratio() < cutBelow
}

// Down reports whether calls only probe whether the service is back.
func (g *Gradient) Down() bool { return g.failing && g.Limit() == lowestLimit }

// Next returns when a call may start although no other one ends. It is zero unless the service is
// down.
func (g *Gradient) Next() time.Time {
	if !g.Down() {
		return time.Time{}
	}
	return g.last.Add(g.pause)
}

// HasRoom reports whether a call may start. Otherwise it must wait until another one ends and until
// Next.
func (g *Gradient) HasRoom(now time.Time) bool {
	return g.underway < g.Limit() && !(g.Down() && now.Before(g.Next()))
}

// Start takes the turn of a call, if there is room. It returns false if not.
func (g *Gradient) Start(now time.Time) bool {
	if !g.HasRoom(now) {
		return false
	}
	g.underway++
	g.full = g.full || g.underway >= g.Limit()
	g.last = now
	return true
}

// Drop ends a call that says nothing about the service.
func (g *Gradient) Drop() { g.underway-- }

// End records the outcome of a call. good reports whether the service answered correctly. The
// duration of a good call is compared with others of its kind, unless it is 0.
func (g *Gradient) End(kind string, good bool, took time.Duration, now time.Time) {
	g.underway--
	if now.Sub(g.began) > gradientOldest {
		g.begin(now)
	}
	if good {
		g.good++
	} else {
		g.bad++
	}
	if good && took > 0 {
		k := g.kinds[kind]
		if k == nil {
			k = &callKind{}
			g.kinds[kind] = k
		}
		k.good++
		k.took += took
	}
	if g.isOver(now) {
		g.adapt()
		g.begin(now)
	}
}

// begin starts a window.
func (g *Gradient) begin(now time.Time) {
	g.began = now
	g.good = 0
	g.bad = 0
	g.full = false
	g.taken = 0
	for _, k := range g.kinds {
		k.good, k.took = 0, 0
	}
}

// isOver reports whether the window is long enough or, while each call shows whether the service
// can take more, has had a round of calls.
func (g *Gradient) isOver(now time.Time) bool {
	ended := g.good + g.bad
	if g.bold && g.Failing() {
		return true // the service died with the node, or is not back yet: it must not get all calls
	}
	if g.isPressed() && ended >= g.Limit() {
		return true
	}
	return now.Sub(g.began) >= gradientWindow && ended >= max(1, min(gradientCalls, g.Limit()/2)) || ended >= max(highestLimit, g.Limit())
}

// isPressed reports whether, while it probes, the limit is what delays calls. One has just ended.
func (g *Gradient) isPressed() bool { return g.probing && g.full && g.underway+1 >= g.Limit() }

func (g *Gradient) ratio() float64 { return float64(g.good) / float64(g.good+g.bad) }

// adapt ends a window and changes the limit.
func (g *Gradient) adapt() {
	ratio := g.ratio()
	mean, stretch := g.pace()
	// A single call does not slow the service down, so this is its normal speed now.
	alone := g.Limit() == lowestLimit
	slow := stretch > tooSlow && mean > g.calm && !alone
	for _, k := range g.kinds {
		if k.good > 0 && ratio >= growAbove && !slow {
			k.learn(k.took/time.Duration(k.good), alone)
		}
	}
	g.failing = ratio < cutBelow
	g.probing = g.probing && ratio >= growAbove && !slow
	bold := g.bold && g.failing
	g.bold = false
	switch {
	case bold:
		g.limit = firstLimit / 2
	case g.failing || slow:
		g.limit = max(lowestLimit, g.limit/2)
	case g.isPressed() && g.bad == 0:
		g.limit = min(float64(g.most), g.limit*doubling)
	case ratio >= growAbove && g.full:
		g.limit = min(float64(g.most), g.limit*growth+1)
	}
}

// pace returns the mean duration of the window's good calls, and its ratio to the normal one.
func (g *Gradient) pace() (mean time.Duration, stretch float64) {
	calls, took, stretched := 0, time.Duration(0), 0.0
	for _, k := range g.kinds {
		calls += k.good
		took += k.took
		if k.normal > 0 {
			stretched += float64(k.took) / float64(k.normal)
		} else {
			stretched += float64(k.good)
		}
	}
	if calls == 0 {
		return 0, 1
	}
	return took / time.Duration(calls), stretched / float64(calls)
}

// learn adjusts the normal duration: at once if calls are faster, slowly if they are slower, unless
// single calls have become much slower.
func (k *callKind) learn(mean time.Duration, alone bool) {
	if k.normal == 0 || mean < k.normal || alone && float64(mean) > tooSlow*float64(k.normal) {
		k.normal = mean
		return
	}
	k.normal += (mean - k.normal) / 50
}
