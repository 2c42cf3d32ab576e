package queue

import (
	"context"
	"sync"
	"time"

	"procaas/engine/taskrun"
)

// A line is what a worker has of one type: how it is done, what waits to begin here,
// and how long it takes. The worker's lock guards what changes.
type line struct {
	want    Want
	running int // at most
	timeout time.Duration
	policy  taskrun.TaskPolicy
	maxWait time.Duration // of ready tasks; 0 for no bound
	do      func(context.Context, *Task) error

	work    sync.Cond // there are tasks to begin, or none will come
	idle    int       // those who wait for that
	waiting []*held   // in the order in which they were taken
	busy    int       // attempts under way
	asked   int       // tasks that a claim on its way may bring
	fed     uint64    // the last hint of [Worker].heard after which there were no more
	took    float64   // seconds of an attempt, as a moving mean; negative before the first
}

// A held task is one that this worker has taken and not yet told the end of.
type held struct {
	Task
	line    *line
	begun   time.Time // zero before that
	gone    bool      // lost to others
	attempt attempt
}

// meanOver is over about how many attempts the mean duration goes.
const meanOver = 16

func (l *line) learn(took time.Duration) {
	if l.took < 0 {
		l.took = took.Seconds()
		return
	}
	l.took += (took.Seconds() - l.took) / meanOver
}

// shortage is how many tasks are worth taking now. Beyond those that begin at once, as
// many as will be done until the next ones can be here: fast tasks are taken in
// surplus, and long ones are left to those who are free.
func (l *line) shortage(ahead time.Duration, most int) int {
	surplus := 0
	if l.took >= 0 {
		surplus = most
		if l.took > 0 {
			surplus = int(min(float64(most), float64(l.running)*ahead.Seconds()/l.took))
		}
		if surplus < l.running { // one of them would wait for longer than it takes elsewhere
			surplus = 0
		}
	}
	return l.running + surplus - l.busy - len(l.waiting) - l.asked
}
