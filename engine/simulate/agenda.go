package simulate

import (
	"container/heap"
	"math"
	"time"
)

// An agenda has future actions by time. Actions of the same time run in the order in which they
// were added.
type agenda struct {
	entries entries
	added   int
}

type entry struct {
	at     time.Duration
	number int
	what   func()
}

// add adds an action.
func (a *agenda) add(at time.Duration, what func()) {
	a.added++
	heap.Push(&a.entries, entry{at, a.added, what})
}

// next returns the time of the next action.
func (a *agenda) next() time.Duration {
	if len(a.entries) == 0 {
		return math.MaxInt64
	}
	return a.entries[0].at
}

// take removes the next action.
func (a *agenda) take() func() { return heap.Pop(&a.entries).(entry).what }

// entries implements [heap.Interface].
type entries []entry

func (e entries) Len() int { return len(e) }

func (e entries) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].number < e[j].number
}

func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *entries) Push(x any) { *e = append(*e, x.(entry)) }

func (e *entries) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = entry{}
	*e = (*e)[:last]
	return x
}
