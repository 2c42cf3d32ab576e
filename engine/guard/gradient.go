package guard

import (
	"cmp"
	"time"
)

// A Gradient bounds how many calls of one service are in flight, by what calls
// come to. It protects a service that has fallen from those who want it up again:
// calls wait for their turn, and none is lost. It reads no clock.
//
// It lets one call at a time through while hardly any succeeds, with pauses, which
// is how it learns that the service is back; and it holds still while many fail
// for reasons of their own, for then fewer calls would help nobody. It begins low, since it
// knows nothing, and doubles with each round of calls until one of them is too much.
type Gradient struct {
	limit    float64
	most     int
	calm     time.Duration
	pause    time.Duration
	underway int
	last     time.Time // when a call started

	// Of the present window:
	began time.Time
	good  int
	bad   int
	full  bool // as many as the limit allows were under way

	probing bool // it has not met what the service bears: the limit doubles with each round of calls
	failing bool // hardly any call of the last window has succeeded
	kinds   map[string]*callKind
}

// A callKind is calls that take about the same time while all is well.
type callKind struct {
	normal time.Duration // while all is well; 0 before that is known

	good int // in the present window
	took time.Duration
}

const (
	firstLimit  = 20
	lowestLimit = 1
	// highestLimit is more than enough for services that answer in time.
	highestLimit = 200

	gradientWindow = 500 * time.Millisecond // at least
	gradientCalls  = 10                     // at least, or half of the limit
	gradientOldest = time.Hour              // a call says nothing about those that end so much later

	cutBelow  = 0.1 // of the calls succeed: the limit is halved
	growAbove = 0.8
	tooSlow   = 2.5 // times the normal time: the limit is halved
	growth    = 1.25
	doubling  = 2 // while nothing says that it is too much

	probePause = 500 * time.Millisecond // between calls of a service that is down
)

// NewGradient returns a limit that has seen no calls. It begins with the limit that was found
// out before; 0 stands for none.
func NewGradient(before int) *Gradient {
	return &Gradient{limit: float64(cmp.Or(before, firstLimit)), most: highestLimit, pause: probePause, kinds: map[string]*callKind{}, probing: true}
}

// Bound says what holds whatever calls come to: no more than most are in flight,
// and those that take no longer than calm are not slow. Pause is the time between
// two calls of a service that is down. Zero values leave what is.
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

// Limit is how many calls may be under way.
func (g *Gradient) Limit() int { return int(g.limit) }

// Failing reports whether hardly any call succeeds at present.
func (g *Gradient) Failing() bool {
	return g.failing || g.good+g.bad >= gradientCalls && g.ratio() < cutBelow
}

// Down reports whether calls are made only to find out when the service is back.
func (g *Gradient) Down() bool { return g.failing && g.Limit() == lowestLimit }

// Next is when a call may start though no other one ends; zero unless the service is down.
func (g *Gradient) Next() time.Time {
	if !g.Down() {
		return time.Time{}
	}
	return g.last.Add(g.pause)
}

// Start takes a call's turn; false tells that it has to wait, until another ends
// and until Next.
func (g *Gradient) Start(now time.Time) bool {
	if g.underway >= g.Limit() || g.Down() && now.Before(g.Next()) {
		return false
	}
	g.underway++
	g.full = g.full || g.underway >= g.Limit()
	g.last = now
	return true
}

// Drop ends a call that tells nothing about the service.
func (g *Gradient) Drop() { g.underway-- }

// End tells what a call that has started came to. Good is whether the service
// answered as it should; the time that good calls take is compared with that of
// others of their kind, unless it is 0.
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
	g.began, g.good, g.bad, g.full = now, 0, 0, false
	for _, k := range g.kinds {
		k.good, k.took = 0, 0
	}
}

// isOver reports whether the window says enough: it is long enough, or a round of calls when
// each shows whether the service bears more.
func (g *Gradient) isOver(now time.Time) bool {
	ended := g.good + g.bad
	if g.isPressed() && ended >= g.Limit() {
		return true
	}
	return now.Sub(g.began) >= gradientWindow && ended >= max(1, min(gradientCalls, g.Limit()/2)) || ended >= highestLimit
}

// isPressed reports whether the limit is what holds calls back while it probes, one having just ended.
func (g *Gradient) isPressed() bool { return g.probing && g.full && g.underway+1 >= g.Limit() }

func (g *Gradient) ratio() float64 { return float64(g.good) / float64(g.good+g.bad) }

// adapt ends a window: it moves the limit.
func (g *Gradient) adapt() {
	ratio := g.ratio()
	mean, stretch := g.pace()
	// One call at a time is not what slows the service down: it is as fast as this
	// now.
	alone := g.Limit() == lowestLimit
	slow := stretch > tooSlow && mean > g.calm && !alone
	for _, k := range g.kinds {
		if k.good > 0 && ratio >= growAbove && !slow {
			k.learn(k.took/time.Duration(k.good), alone)
		}
	}
	g.failing = ratio < cutBelow
	g.probing = g.probing && ratio >= growAbove && !slow
	switch {
	case g.failing || slow:
		g.limit = max(lowestLimit, g.limit/2)
	case g.isPressed() && g.bad == 0:
		g.limit = min(float64(g.most), g.limit*doubling)
	case ratio >= growAbove && g.full:
		g.limit = min(float64(g.most), g.limit*growth+1)
	}
}

// pace returns what the good calls of the window took, and how many times what is
// normal for them.
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

// learn follows what is normal: at once to the better, and slowly to the worse,
// unless one call at a time has become much slower.
func (k *callKind) learn(mean time.Duration, alone bool) {
	if k.normal == 0 || mean < k.normal || alone && float64(mean) > tooSlow*float64(k.normal) {
		k.normal = mean
		return
	}
	k.normal += (mean - k.normal) / 50
}
