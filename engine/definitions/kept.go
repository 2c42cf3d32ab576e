package definitions

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"
)

// These bound the definitions that a node keeps although none of its runs holds them. Loading one again only takes time.
const (
	maxDefinitions = 16
	keptSource     = 512 << 10 // bytes of their files: a definition takes some thirty times as much memory
	keptUnused     = time.Minute
)

// kept has the definitions in memory. Those that were used lately stay. Any other is found only as long as a run holds it,
// so that there is never a second copy.
type kept struct {
	mu    sync.Mutex // guards the following
	used  []usedDefinition
	known map[string]weak.Pointer[Definition] // by hash
}

// A usedDefinition is a definition that stays in memory. Those at the front were used the longest time ago.
type usedDefinition struct {
	*Definition

	at time.Time // zero: no longer of use
}

func (k *kept) put(d *Definition, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[string]weak.Pointer[Definition]{}
	}
	k.known[d.Bundle.Hash] = weak.Make(d)
	k.used = append(k.used, usedDefinition{d, now})
	runtime.AddCleanup(d, k.gone, d.Bundle.Hash)
}

// gone forgets a definition after its memory was collected. Nobody else asks whether one is still there: asking while the
// collector works would keep it.
func (k *kept) gone(hash string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d, ok := k.known[hash]; ok && d.Value() == nil {
		delete(k.known, hash)
	}
}

// get returns a definition that is in memory and marks it as used, or nil.
func (k *kept) get(hash string, now time.Time) *Definition {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.known[hash].Value()
	if d == nil {
		return nil
	}
	k.used = append(slices.DeleteFunc(k.used, func(u usedDefinition) bool { return u.Definition == d }), usedDefinition{d, now})
	return d
}

// unused says that only runs that have begun with a definition may need it.
func (k *kept) unused(d *Definition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = slices.DeleteFunc(k.used, func(u usedDefinition) bool { return u.Definition == d })
	k.used = slices.Insert(k.used, 0, usedDefinition{Definition: d})
}

// trim drops what is too much, the longest unused first. Pinned definitions stay and do not count.
func (k *kept) trim(now time.Time, pinned func(*Definition) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	count, source := 0, 0
	for _, u := range k.used {
		if !pinned(u.Definition) {
			count++
			source += u.source()
		}
	}
	k.used = slices.DeleteFunc(k.used, func(u usedDefinition) bool {
		fits := count <= maxDefinitions && (source <= keptSource || now.Sub(u.at) < keptUnused)
		if fits || pinned(u.Definition) {
			return false
		}
		count--
		source -= u.source()
		u.Client.CloseIdleConnections()
		return true
	})
}

// all returns the definitions in memory.
func (k *kept) all() (out []*Definition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.known {
		if d := d.Value(); d != nil {
			out = append(out, d)
		}
	}
	return out
}

// source returns how large the files of the definition are, in bytes.
func (d *Definition) source() (n int) {
	for _, f := range d.Bundle.Files {
		n += len(f.Data)
	}
	return n
}
