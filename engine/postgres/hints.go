package postgres

import (
	"sync"

	"procaas/engine/pgkit"
)

// hints has what a process knows about ready runs, and notifies others.
type hints struct {
	horizon horizon
	wake    chan struct{} // wakes this process's node
	tell    chan struct{} // wakes the sender of notifications to all nodes
	untold  untold
}

// hint notifies all nodes that runs are ready, none of them before a position.
func (h *hints) hint(first position) {
	h.horizon.lower(first)
	h.untold.add(first)
	pgkit.Signal(h.wake)
	pgkit.Signal(h.tell)
}

// An untold is a hint that has not been sent yet.
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
