package drawing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/tree"
)

// The drawing of an automaton: its states stand in a row, in the order in which they are named. Moves are arcs: ahead
// above the row, back below it. Each side has lanes, so that no name of an event stands on another.
const (
	statePitch  = 170
	stateWidth  = 124
	stateHeight = 38
	laneHeight  = 24
	letterWidth = 6.6 // of the names of events, at most
)

// An Automaton is the drawing.
type Automaton struct {
	States        []stateNode
	Links         []stateLink
	Width, Height int
	Row           int // the middle of the states
}

type stateNode struct {
	X       int
	Name    string
	Present bool
	Final   bool
	Moves   []stateLink // that begin here
}

// A stateLink is the moves from one state to another.
type stateLink struct {
	Path string
	On   string
	To   string
	X, Y int // of the name

	from, to, lane int
	back           bool
}

// NewAutomaton lays an automaton out.
func NewAutomaton(a *tree.Automaton, present string) (d Automaton) {
	at := map[string]int{}
	add := func(name string) {
		if _, known := at[name]; !known {
			at[name] = len(d.States)
			d.States = append(d.States, stateNode{
				X: stateWidth/2 + 12 + len(d.States)*statePitch, Name: name, Present: name == present, Final: slices.Contains(a.Final, name),
			})
		}
	}
	add(a.Initial)
	for _, t := range a.Transitions {
		for _, from := range t.From {
			add(from)
		}
		add(t.To)
	}
	for _, t := range a.Transitions {
		for _, from := range t.From {
			d.link(at[from], at[t.To], strings.Join(t.On, ", "))
		}
	}
	above, below := d.lanes(false), d.lanes(true)
	d.Row = above*laneHeight + stateHeight/2 + 16
	d.Height = d.Row + stateHeight/2 + below*laneHeight + 16
	d.Width = (len(d.States)-1)*statePitch + stateWidth + 24
	for i := range d.Links {
		l := &d.Links[i]
		l.draw(d.States[l.from].X, d.States[l.to].X, d.Row)
		d.States[l.from].Moves = append(d.States[l.from].Moves, *l)
	}
	return d
}

// link adds a move, to the one that begins and ends with it.
func (d *Automaton) link(from, to int, on string) {
	for i := range d.Links {
		if l := &d.Links[i]; l.from == from && l.to == to {
			l.On += ", " + on
			return
		}
	}
	d.Links = append(d.Links, stateLink{On: on, To: d.States[to].Name, from: from, to: to, back: to < from})
}

// lanes gives each arc of a side a lane, the short ones nearest to the states, and returns how many there are. Arcs share
// a lane when neither they nor their names meet.
func (d *Automaton) lanes(back bool) (count int) {
	var side []*stateLink
	for i := range d.Links {
		if d.Links[i].back == back {
			side = append(side, &d.Links[i])
		}
	}
	slices.SortStableFunc(side, func(a, b *stateLink) int { return cmp.Compare(abs(a.to-a.from), abs(b.to-b.from)) })
	ends := func(l *stateLink) (left, right float64) {
		x, y := float64(d.States[l.from].X), float64(d.States[l.to].X)
		middle, half := (x+y)/2, letterWidth*float64(len(l.On))/2+4
		return min(x, y, middle-half), max(x, y, middle+half)
	}
	for i, l := range side {
		left, right := ends(l)
		for l.lane = 1; slices.ContainsFunc(side[:i], func(o *stateLink) bool {
			from, to := ends(o)
			return o.lane == l.lane && from < right && left < to
		}); l.lane++ {
		}
		count = max(count, l.lane)
	}
	return count
}

// draw makes the arc: up, along its lane, and down.
func (l *stateLink) draw(from, to, row int) {
	const corner = 10
	apart := min(10*l.lane, stateWidth/2-18) // arcs of different lanes begin and end at different places
	sign, begin, end := -1, from+apart, to-apart
	switch {
	case l.back:
		sign, begin, end = 1, from-apart, to+apart
	case l.from == l.to:
		begin, end = from-40, to+40
	}
	edge := row + sign*stateHeight/2
	y := edge + sign*(l.lane*laneHeight-6)
	turn := corner
	if end < begin {
		turn = -corner
	}
	l.X, l.Y = (begin+end)/2, y-5
	l.Path = fmt.Sprintf("M%d %dV%dQ%d %d %d %dH%dQ%d %d %d %dV%d", begin, edge, y-sign*corner, begin, y, begin+turn, y, end-turn, end, y, end,
		y-sign*corner, edge+sign*2)
}

func abs(x int) int { return max(x, -x) }
