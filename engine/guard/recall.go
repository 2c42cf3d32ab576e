package guard

import "maps"

// Limits returns how many calls each service takes at once, as far as this node has found
// out. Services of which it knows nothing yet are missing, and so are those that are down.
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

// Recall tells the guard what a node found out before. Limits of services that it has not
// called yet begin there, and not as if nothing were known.
func (g *Guard) Recall(limits map[string]int) {
	g.mu.Lock()
	g.recalled = limits
	g.mu.Unlock()
	for name, at := range g.allGates() { // somebody may have looked at them already
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
