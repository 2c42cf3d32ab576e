package taskrun

import (
	"math/rand/v2"
	"time"
)

// lostPause is the longest that a suspect waits which is to be tried for the last time.
const lostPause = 10 * time.Second

// SuspectDelay says for how long a suspect waits, a run or a task, that has lost its node or
// worker so often before, and is given up when it has lost too many. What brings a node down
// takes all with it that runs there, and what is tried again at once meets it again: it is
// drawn by lot how long each waits, the longer the nearer it is to be given up.
func SuspectDelay(before, tooMany int) time.Duration {
	most := time.Duration(before) * lostPause / time.Duration(max(1, tooMany))
	if most < time.Millisecond {
		return 0
	}
	return rand.N(most)
}
