package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Activate implements [store.Bundles].
func (m bundlePort) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	known := m.keep(hash, files)
	if hash == m.current || onlyNew && known && m.current != "" {
		return m.current, nil
	}
	m.activate(hash, by)
	return hash, nil
}

// keep stores a definition, and reports whether it was stored.
func (m bundlePort) keep(hash string, files []byte) (known bool) {
	_, known = m.bundles[hash]
	if !known {
		m.bundles[hash] = bytes.Clone(files)
		m.stored = append(m.stored, store.StoredBundle{Hash: hash, Stored: m.now()})
	}
	return known
}

// activate makes a definition current.
func (m bundlePort) activate(hash string, by store.Actor) {
	m.audit(store.Audited{
		Kind: store.AuditDefinition, By: by, Before: store.AuditText(m.current), After: store.AuditText(hash),
	})
	m.current, m.serving = hash, hash
}

// Keep implements [store.Bundles].
func (m bundlePort) Keep(ctx context.Context, hash string, files []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(hash, files)
	return ctx.Err()
}

// Promote implements [store.Bundles].
func (m bundlePort) Promote(ctx context.Context, old, hash string, by store.Actor) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil || m.current != old {
		return false, ctx.Err()
	}
	m.activate(hash, by)
	return true, nil
}

// Current implements [store.Bundles].
func (m bundlePort) Current(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == "" {
		return "", cmp.Or(ctx.Err(), store.ErrNotFound)
	}
	return m.current, ctx.Err()
}

// Bundle implements [store.Bundles].
func (m bundlePort) Bundle(ctx context.Context, hash string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	files, ok := m.bundles[hash]
	if !ok {
		return nil, cmp.Or(ctx.Err(), store.ErrNotFound)
	}
	return bytes.Clone(files), ctx.Err()
}

// Stored implements [store.Bundles].
func (m bundlePort) Stored(ctx context.Context) ([]store.StoredBundle, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.stored)
	slices.Reverse(all)
	return all, ctx.Err()
}

// revision returns the revision of the settings, which counts their changes.
func (m *data) revision() int64 { return m.settings }

// audit writes an audit record, which makes the next revision.
func (m *data) audit(a store.Audited) {
	m.settings++
	a.Revision, a.Changed = m.settings, m.now()
	before := m.auditBase.Hash
	if n := len(m.audits); n > 0 {
		before = m.audits[n-1].Hash
	}
	a.Hash = a.ChainHash(before)
	m.audits = append(m.audits, a)
}

// Configs implements [store.Settings].
func (m settingPort) Configs(ctx context.Context) (map[string]store.Setting, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.configs), m.revision(), ctx.Err()
}

// SetConfig implements [store.Settings].
func (m settingPort) SetConfig(ctx context.Context, name string, value []byte, ifRevision int64, by store.Actor) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	before := m.configs[name]
	if ifRevision >= 0 && before.Revision != ifRevision {
		return 0, store.ErrConflict
	}
	value = bytes.Clone(value)
	m.audit(store.Audited{Kind: store.AuditConfig, Name: name, By: by, Before: before.Value, After: value})
	m.configs[name] = store.Setting{Value: value, Revision: m.revision(), Changed: m.now(), By: by}
	return m.revision(), nil
}

// Controls implements [store.Settings].
func (m settingPort) Controls(ctx context.Context) (map[string]store.Setting, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.controls), m.revision(), ctx.Err()
}

// SetControl implements [store.Settings].
func (m settingPort) SetControl(ctx context.Context, path string, value []byte, ifRevision int64, by store.Actor) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	before, known := m.controls[path]
	switch {
	case ifRevision >= 0 && before.Revision != ifRevision:
		return 0, store.ErrConflict
	case value == nil && !known:
		return 0, store.ErrNotFound
	case value == nil:
		m.audit(store.Audited{Kind: store.AuditControl, Name: path, By: by, Before: before.Value, After: store.AuditRemoved()})
		delete(m.controls, path)
	default:
		value = bytes.Clone(value)
		m.audit(store.Audited{Kind: store.AuditControl, Name: path, By: by, Before: before.Value, After: value})
		m.controls[path] = store.Setting{Value: value, Revision: m.revision(), Changed: m.now(), By: by}
	}
	return m.revision(), nil
}

// Release implements [store.Runs].
func (m *Store) Release(ctx context.Context, cause string, limit int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, r := range m.order {
		if n < limit && r.isParkedFor(cause) {
			r.due, r.cause = m.now(), ""
			n++
		}
	}
	if n > 0 {
		m.hint()
	}
	return n, ctx.Err()
}

// WakeRun implements [store.Runs].
func (m *Store) WakeRun(ctx context.Context, run string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[run]; r != nil && r.status == model.Parked && r.node == 0 {
		r.due = m.now()
		m.hint()
	}
	return ctx.Err()
}

// isParkedFor reports whether a run waits for a cause.
func (r *memoryRun) isParkedFor(cause string) bool {
	return r.status == model.Parked && r.node == 0 && r.cause == cause && !r.isHeld()
}

// causes lists what parked runs wait for.
func (m *Store) causes() []string {
	var out []string
	for _, r := range m.idle {
		if r.cause != "" && r.isParkedFor(r.cause) {
			out = append(out, r.cause)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
