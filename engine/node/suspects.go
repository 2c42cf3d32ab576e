package node

import (
	"fmt"
	"sync"
	"time"

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

// admit decides about a run that is suspected of bringing its nodes down: it goes on when it is
// not, or when it may be tried now. Otherwise it waits, or is quarantined.
func (j opening) admit() bool {
	c := j.claimed
	change := model.Change{Run: c.ID, Version: j.version, Bundle: c.Bundle, Pipeline: c.Pipeline, Checkpoint: c.Checkpoint}
	switch {
	case !model.Suspected(c.Losses):
		return true
	case c.Losses >= maxLosses:
		change.Status, change.Undoing, change.ErrorClass = model.Parked, true, model.ClassQuarantined
		change.Error = fmt.Sprintf("quarantined: %d nodes in a row died while they had this run, before it got any further, "+
			"and at the last two it was the only one that was suspected; find out what it does there, then retry or cancel it", c.Losses)
		if j.close(change) {
			j.n.d.Metrics.Quarantined.Inc()
			j.at("").Error("run is quarantined", "losses", c.Losses)
		}
		return false
	case !j.n.suspects.try(c.ID, c.Losses):
		change.Status, change.Due = model.Parked, j.n.d.Clock.Now().Add(time.Second+taskrun.SuspectDelay(c.Losses, maxLosses))
		j.close(change)
		return false
	}
	j.at("").Warn("run is tried by itself: nodes have died while they had it", "losses", c.Losses)
	change.Status, change.Trial = model.Running, true
	return j.close(change)
}
