package guard

import "maps"

// Limits returns how many calls each service can take at once, as far as this node knows. Unknown
// services and those that are down are missing.
func (g *Guard) Limits() map[string]int {
	limits := map[string]int{}
	for name, at := range g.allGates() {
		at.mu.Lock()
		if at.adaptive != nil && !at.adaptive.failing && at.adaptive.Limit() != firstLimit {
			limits[name] = at.adaptive.Limit()
		}
		at.mu.Unlock()
	}
	return limits
}

// Moved returns a channel that gets a signal when one of the limits has changed.
func (g *Guard) Moved() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.signal()
}

// signal returns the channel of Moved. The caller holds the lock.
func (g *Guard) signal() chan struct{} {
	if g.moved == nil {
		g.moved = make(chan struct{}, 1)
	}
	return g.moved
}

// Recall sets the limits that a node found before. They are the initial limits of services that
// this node has not called yet.
func (g *Guard) Recall(limits map[string]int) {
	g.mu.Lock()
	g.recalled = limits
	g.mu.Unlock()
	for name, at := range g.allGates() { // a gate may have been read already
		at.mu.Lock()
		at.recalled = limits[name]
		if at.adaptive != nil && at.adaptive.last.IsZero() {
			at.adaptive = nil
			at.heed(at.terms)
		}
		at.mu.Unlock()
	}
}

func (g *Guard) allGates() map[string]*gate {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return maps.Clone(g.gates)
}
