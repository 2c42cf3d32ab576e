package engine

import "sync"

// A Memory holds what handlers of a node keep from call to call to spare work: it may
// be forgotten at any time, so nothing may depend on it. The zero value is empty.
type Memory struct {
	mu   sync.Mutex // guards kept
	kept map[string]any
}

// Take gives what was put under a name, and forgets it, so that no two calls use it at
// once; nil when there is nothing.
func (m *Memory) Take(name string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.kept[name]
	delete(m.kept, name)
	return v
}

// Put keeps a value under a name, in place of the one before.
func (m *Memory) Put(name string, v any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[string]any{}
	}
	m.kept[name] = v
}
