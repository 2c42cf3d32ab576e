package memory

import (
	"bytes"
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/engine/store"
)

// AllTokens implements [store.Tokens].
func (m settingPort) AllTokens(ctx context.Context) (map[string]store.Setting, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.tokens), m.revision(), ctx.Err()
}

// SetToken implements [store.Tokens].
func (m settingPort) SetToken(ctx context.Context, name string, value, hash []byte, ifRevision int64, by store.Actor) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.tokens[name]
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case ifRevision >= 0 && before.Revision != ifRevision:
		return 0, store.ErrConflict
	}
	value = bytes.Clone(value)
	m.audit(store.Audited{Kind: store.AuditToken, Name: name, By: by, Before: before.Value, After: value})
	m.tokens[name] = store.Setting{Value: value, Hash: bytes.Clone(hash), Revision: m.revision(), Changed: m.now(), By: by}
	return m.revision(), nil
}

// Audit implements [store.Audits].
func (m settingPort) Audit(ctx context.Context, f store.AuditFilter) ([]store.Audited, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []store.Audited
	for _, a := range slices.Backward(m.audits) {
		switch {
		case f.Before > 0 && a.Revision >= f.Before, f.Kind != "" && a.Kind != f.Kind, f.By != "" && a.By.Name != f.By,
			f.Name != "" && a.Name != f.Name && !strings.HasPrefix(a.Name, f.Name+"/"),
			a.Changed.Before(f.Since), !f.Until.IsZero() && !a.Changed.Before(f.Until):
		case len(out) < f.Limit:
			out = append(out, a)
		}
	}
	return out, ctx.Err()
}

// VerifyAudit implements [store.Audits].
func (m settingPort) VerifyAudit(ctx context.Context, kept []string) ([]store.AuditChain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	check := store.NewAuditCheck(kept)
	check.From(m.auditBase, 0, m.settings)
	for _, a := range m.audits {
		check.Add(a)
	}
	return []store.AuditChain{check.End()}, ctx.Err()
}

// ForgetAudit implements [store.Audits].
func (m settingPort) ForgetAudit(ctx context.Context, keep time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	horizon := m.now().Add(-keep)
	last, real := 0, false // of what is kept at least, and whether what goes is more than trims
	for i, a := range m.audits {
		if a.Kind != store.AuditTrim {
			last = i
		}
	}
	trim := store.AuditedTrim{Retention: keep.String()}
	for ; int(trim.Removed) < last && m.audits[trim.Removed].Changed.Before(horizon); trim.Removed++ {
		a := m.audits[trim.Removed]
		real = real || a.Kind != store.AuditTrim
		trim.UpTo, trim.Hash = a.Revision, hex.EncodeToString(a.Hash)
		if a.Changed.After(trim.Newest) {
			trim.Newest = a.Changed
		}
	}
	if !real {
		return false, ctx.Err()
	}
	m.audit(trim.Trimmed())
	m.auditBase = store.AuditLink{Revision: trim.UpTo, Hash: m.audits[trim.Removed-1].Hash}
	m.audits = m.audits[trim.Removed:]
	return false, ctx.Err()
}
