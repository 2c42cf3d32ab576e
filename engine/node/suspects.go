package node

import (
	"sync"

	"procaas/engine/guard"
	"procaas/engine/model"
)

// This file distinguishes runs that kill their node from runs that merely were there. All runs of a
// node die with it, and meet again at the next node. So runs that were there too often are tried in
// ever smaller groups, until the guilty one is alone.

// maxLosses is how many nodes in a row a run may lose. For the last two it must have been the only
// suspected run of its node.
const maxLosses = guard.MaxLost

// triedWith returns how many suspects a node tries at once if one of them has this many losses:
// eight, and after one more loss only itself.
func triedWith(losses int) int {
	if losses > model.SuspectedFrom {
		return 1
	}
	return 8
}

// suspects are the runs under trial at a node. The zero value has none.
type suspects struct {
	mu     sync.Mutex // guards the following
	losses map[string]int
}

// try adds a run if there is room for it among those under trial.
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

// clear removes a run that is over or has advanced.
func (s *suspects) clear(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.losses, run)
}
