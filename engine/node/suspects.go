package node

import (
	"sync"

	"procaas/engine/model"
	"procaas/engine/taskrun"
)

// This file tells what brings its node down from what only happened to be there. Whatever
// runs at a node dies with it, and all of it meets again at the next one. So those that were
// there too often are tried one after the other, until the one that is to blame was alone.

// maxLosses is how many nodes a run may lose in a row. The last two it had to lose when it was
// the only suspected run at its node.
const maxLosses = taskrun.MaxTaskLost

// triedWith is how many suspects a node tries at once, with one among them that has lost so
// many: eight, and after one more only itself.
func triedWith(losses int) int {
	if losses > model.SuspectedFrom {
		return 1
	}
	return 8
}

// suspects are the runs under trial at a node. Its zero value has none.
type suspects struct {
	mu     sync.Mutex // guards the following
	losses map[string]int
}

// try takes a run in when there is room for it among those that are under trial.
func (s *suspects) try(run string, losses int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := triedWith(losses)
	for _, other := range s.losses {
		most = min(most, triedWith(other))
	}
	if len(s.losses) >= most {
		return false
	}
	if s.losses == nil {
		s.losses = map[string]int{}
	}
	s.losses[run] = losses
	return true
}

// clear takes a run out, which is over or has got further.
func (s *suspects) clear(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.losses, run)
}
