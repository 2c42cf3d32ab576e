package postgres

import (
	"os"
	"slices"
	"sync"

	"procaas/engine/pgkit"
)

// Neighbours are the processes of other nodes on this machine. The system tells at once when one of them ends, so that this node need not
// wait for its next beat. That is only a hint: a beat judges, as any other does.
type neighbours struct {
	ended chan struct{} // gets a signal when one has ended. Its size is 1, because one beat is enough for all

	mu      sync.Mutex // guards the following
	closed  bool
	handles map[string]*os.File // by the name of the process; nil for one that cannot be watched, such as one of another machine
	helpers sync.WaitGroup
}

// watch watches these processes, and no others any more.
func (n *neighbours) watch(names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, handle := range n.handles {
		if !slices.Contains(names, name) {
			_ = handle.Close() // it may be nil, or closed already
			delete(n.handles, name)
		}
	}
	for _, name := range names {
		if _, known := n.handles[name]; known || n.closed {
			continue
		}
		handle := openProcess(name)
		n.handles[name] = handle
		if handle == nil {
			continue
		}
		n.helpers.Go(func() {
			defer handle.Close()
			if waitForEnd(handle, name) {
				pgkit.Signal(n.ended)
			}
		})
	}
}

// close watches nothing any more.
func (n *neighbours) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.watch(nil)
	n.helpers.Wait()
}
