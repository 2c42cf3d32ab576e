package postgres

import (
	"sync"

	"procaas/engine/pgkit"
)

// hints are what a process knows and tells of runs that are ready.
type hints struct {
	horizon horizon
	wake    chan struct{} // for this process's node
	tell    chan struct{} // for all nodes
	untold  untold
}

// hint tells all nodes that runs are ready, none of them before a position.
func (h *hints) hint(first position) {
	h.horizon.lower(first)
	h.untold.add(first)
	pgkit.Signal(h.wake)
	pgkit.Signal(h.tell)
}

// An untold is what hints have to tell.
type untold struct {
	mu    sync.Mutex // guards the following
	any   bool
	first position
}

func (u *untold) add(p position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.any {
		u.first = endOfQueue
	}
	u.any, u.first = true, earlier(u.first, p)
}

func (u *untold) take() position {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.any = false
	return u.first
}
