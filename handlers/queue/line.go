package queue

import (
	"context"
	"sync"
	"time"

	"procaas/handlers/queue/taskrun"
)

// A line is a worker's state for one type: how to do its tasks, which tasks wait here, and how long
// they take. The worker's lock guards what changes.
type line struct {
	want    Want
	running int // limit
	timeout time.Duration
	policy  taskrun.TaskPolicy
	maxWait time.Duration // of ready tasks; 0 for no limit
	do      func(context.Context, *Task) error

	work    sync.Cond // there are tasks to begin, or no more will come
	idle    int       // goroutines that wait for that
	waiting []*held   // in the order of their claims
	busy    int       // attempts in flight
	asked   int       // tasks that a claim in flight may bring
	fed     uint64    // the last hint of [Worker].heard after which there were no more tasks
	took    float64   // moving mean of the seconds of an attempt; negative before the first
}

// A held task is one that this worker has taken and whose outcome it has not reported yet.
type held struct {
	Task
	line    *line
	begun   time.Time // zero before it begins
	gone    bool      // another worker may have it
	attempt attempt
}

// meanOver is over how many attempts the mean duration is averaged.
const meanOver = 16

func (l *line) learn(took time.Duration) {
	if l.took < 0 {
		l.took = took.Seconds()
		return
	}
	l.took += (took.Seconds() - l.took) / meanOver
}

// shortage returns how many tasks to claim now. It is those that begin at once, plus those that
// will be done before the next claim can arrive. So fast tasks are prefetched, and long ones are
// left to idle workers.
func (l *line) shortage(ahead time.Duration, most int) int {
	surplus := 0
	if l.took >= 0 {
		surplus = most
		if l.took > 0 {
			surplus = int(min(float64(most), float64(l.running)*ahead.Seconds()/l.took))
		}
		if surplus < l.running { // one of them would wait longer here than elsewhere
			surplus = 0
		}
	}
	return l.running + surplus - l.busy - len(l.waiting) - l.asked
}
