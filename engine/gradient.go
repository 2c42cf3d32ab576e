package engine

import "time"

// A Gradient bounds how many calls of one service are under way, by what calls
// come to. It protects a service that has fallen from those who want it up again:
// calls wait for their turn, and none is lost. It reads no clock.
//
// It lets one call at a time through while hardly any succeeds, which is how it
// learns that the service is back; and it holds still while many fail for reasons
// of their own, for then fewer calls would help nobody.
type Gradient struct {
	limit    float64
	underway int

	// Of the present window:
	began time.Time
	good  int
	bad   int
	took  time.Duration // by the good ones, together
	full  bool          // as many as the limit allows were under way

	normal time.Duration // what a call takes while all is well; 0 before that is known
}

const (
	firstLimit  = 20
	lowestLimit = 1
	// highestLimit is more than enough for services that answer in time.
	highestLimit = 200

	gradientWindow = 500 * time.Millisecond // at least
	gradientCalls  = 10                     // at least, or half of the limit

	cutBelow  = 0.1 // of the calls succeed: the limit is halved
	growAbove = 0.8
	tooSlow   = 2.5 // times the normal time: the limit is halved
	growth    = 1.25
)

// NewGradient gives a limit that has seen no calls.
func NewGradient() *Gradient { return &Gradient{limit: firstLimit} }

// Limit is how many calls may be under way.
func (g *Gradient) Limit() int { return int(g.limit) }

// Start takes a call's turn; false tells that it has to wait until another ends.
func (g *Gradient) Start() bool {
	if g.underway >= g.Limit() {
		return false
	}
	g.underway++
	g.full = g.full || g.underway >= g.Limit()
	return true
}

// End tells what a call that has started came to. Good is whether the service
// answered as it should.
func (g *Gradient) End(good bool, took time.Duration, now time.Time) {
	g.underway--
	if g.began.IsZero() {
		g.began = now
	}
	if good {
		g.good++
		g.took += took
	} else {
		g.bad++
	}
	enough := max(1, min(gradientCalls, g.Limit()/2))
	if now.Sub(g.began) >= gradientWindow && g.good+g.bad >= enough || g.good+g.bad >= highestLimit {
		g.adapt()
		g.began, g.good, g.bad, g.took, g.full = now, 0, 0, 0, false
	}
}

// adapt ends a window: it moves the limit.
func (g *Gradient) adapt() {
	ratio := float64(g.good) / float64(g.good+g.bad)
	slow := false
	if g.good > 0 {
		mean := g.took / time.Duration(g.good)
		slow = g.normal > 0 && float64(mean) > tooSlow*float64(g.normal)
		if ratio >= growAbove && !slow {
			g.learn(mean)
		}
	}
	switch {
	case ratio < cutBelow || slow:
		g.limit = max(lowestLimit, g.limit/2)
	case ratio >= growAbove && g.full:
		g.limit = min(highestLimit, g.limit*growth+1)
	}
}

// learn follows what is normal: at once to the better, slowly to the worse.
func (g *Gradient) learn(mean time.Duration) {
	if g.normal == 0 || mean < g.normal {
		g.normal = mean
		return
	}
	g.normal += (mean - g.normal) / 50
}
