package engine

import "sync"

// A Memory caches what the handlers of a node reuse between calls. Entries may vanish at any time,
// so nothing may depend on them. The zero value is empty.
type Memory struct {
	mu   sync.Mutex // guards kept
	kept map[string]any
}

// Take removes and returns the value of a name, so that no two calls use it at once. It returns nil
// if there is none.
func (m *Memory) Take(name string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.kept[name]
	delete(m.kept, name)
	return v
}

// Put stores a value under a name and replaces the one before.
func (m *Memory) Put(name string, v any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[string]any{}
	}
	m.kept[name] = v
}
