package guard

import (
	"cmp"
	"maps"

	"procaas/engine/model"
)

// Shares divide a gate between owners, pipelines and sources of events while calls wait for it. The
// next turn is of the owner with the fewest calls in flight, then of its pipeline with the fewest,
// then of the source of that with the fewest. Of two with as many, it is of the one that has waited
// longer for a turn. So a flood of one does not make the calls of another wait behind it.
type shares map[level]*share

// A level is an owner at level 0, a pipeline at 1, or a source at 2.
type level struct {
	depth int
	lane  model.Lane
}

// A share is what a part has of a gate. A call of a pipeline with the weight 2 counts half.
type share struct {
	above *share // nil for an owner
	spots int
	all   float64 // spots that wait or are in flight
	busy  float64 // those in flight
	turn  int     // its last turn, counted at the gate
}

// idleShares is how many shares may be kept without spots, for the next call.
const idleShares = 100

// at returns the share of a part.
func (s shares) at(depth int, l model.Lane) *share {
	p := level{depth, l}
	if sh := s[p]; sh != nil {
		return sh
	}
	sh := &share{}
	switch depth {
	case 1:
		sh.above = s.at(0, model.Lane{Owner: l.Owner})
	case 2:
		sh.above = s.at(1, model.Lane{Owner: l.Owner, Pipeline: l.Pipeline})
	}
	s[p] = sh
	return sh
}

// forget deletes shares without spots if there are many.
func (s shares) forget() {
	if len(s) > idleShares {
		maps.DeleteFunc(s, func(_ level, sh *share) bool { return sh.spots == 0 })
	}
}

// come, start and leave count the steps of a spot.
func (s *spot) come() {
	for sh := s.share; sh != nil; sh = sh.above {
		sh.spots++
		sh.all += s.cost
	}
}

func (s *spot) start(turn int) {
	for sh := s.share; sh != nil; sh = sh.above {
		sh.busy, sh.turn = sh.busy+s.cost, turn
	}
}

func (s *spot) quit(started bool) {
	for sh := s.share; sh != nil; sh = sh.above {
		sh.spots--
		sh.all -= s.cost
		if started {
			sh.busy -= s.cost
		}
		if sh.spots == 0 {
			sh.all, sh.busy = 0, 0 // no rounding errors remain
		}
	}
}

// byCalls and byTurn compare two shares of the same level.
func byCalls(a, b *share) int { return cmp.Compare(a.all, b.all) }
func byTurn(a, b *share) int  { return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.turn, b.turn)) }

// compare compares two shares, first what is above them.
func (sh *share) compare(other *share, by func(a, b *share) int) int {
	if sh == other {
		return 0
	}
	if sh.above != nil {
		if c := sh.above.compare(other.above, by); c != 0 {
			return c
		}
	}
	return by(sh, other)
}
