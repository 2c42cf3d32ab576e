package guard

import (
	"math/rand/v2"
	"time"
)

// MaxLost is how many nodes or workers in a row a run or a task may lose before it is given up.
const MaxLost = 5

// lostPause is the longest wait of a suspect, before its last try.
const lostPause = 10 * time.Second

// SuspectDelay returns how long a suspect run or task waits that has lost its node or worker before
// times, and is given up after tooMany. A task that kills a node also kills everything else there, and
// immediate retries would meet it again. So the wait is random, and longer the closer the suspect
// is to being given up.
func SuspectDelay(before, tooMany int) time.Duration {
	most := time.Duration(before) * lostPause / time.Duration(max(1, tooMany))
	if most < time.Millisecond {
		return 0
	}
	return rand.N(most)
}
