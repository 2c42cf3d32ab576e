// Package sealed encrypts what a store has of customers, between the engine and the store.
//
// Each value is sealed with a data key. Data keys lie in the store, in a document, and are themselves encrypted with a
// key-encryption key that only a file has. A sealed value names its data key, and is bound to its place: it opens only there.
// A value that is not sealed passes as it is, so a store may have both.
package sealed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"procaas/engine/store"
)

// A Ring opens the stores of one process with the keys of one file.
type Ring struct {
	File string // of the key-encryption keys; empty if there is none
	Log  *slog.Logger

	mu     sync.Mutex // guards vaults
	vaults []*Vault
}

// Store makes a store seal its data. Without a file, it returns an error for a store that has data keys. It changes nothing in the store
// before the first write.
func (r *Ring) Store(ctx context.Context, s *store.Store) error {
	_, err := r.wrap(ctx, s)
	return err
}

// Cell is Store for one of several databases.
func (r *Ring) Cell(ctx context.Context, c *store.Cell) error {
	v, err := r.wrap(ctx, &c.Store)
	if err != nil || r.File == "" {
		return err
	}
	c.Moves = moves{c.Moves, v, r}
	c.Outbox = outbox{c.Outbox, v}
	c.Marked = marked{c.Marked, v}
	if c.Shared != nil {
		c.Shared = parcels{c.Shared, v, r}
	}
	return nil
}

// wrap puts the ports of a vault around those of a store.
func (r *Ring) wrap(ctx context.Context, s *store.Store) (*Vault, error) {
	v := NewVault(s.Documents, r.File, r.Log)
	v.ledger = s.Ledger
	k, err := v.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	if r.File == "" {
		s.Ledger = plainLedger{s.Ledger, v}
		return v, k.refusePlain()
	}
	if len(k.state.Keys) == 0 {
		if err := v.refuseOthers(ctx, time.Time{}); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	r.vaults = append(r.vaults, v)
	r.mu.Unlock()
	s.Inbox = inbox{s.Inbox, v}
	s.Ledger = ledger{s.Ledger, v}
	s.Runs = runs{s.Runs, v}
	s.Audits = audits{s.Audits, v}
	s.Degradation = degradation{s.Degradation, v}
	s.Documents = documents{s.Documents, v}
	if s.Trimmer != nil {
		s.Trimmer = trimmer{s.Trimmer, v}
	}
	if s.Tasks != nil {
		t := *s.Tasks
		t.Queue, t.Work, t.Admin = taskQueue{t.Queue, v}, taskWork{t.Work, v}, taskAdmin{t.Admin, v}
		if t.Enqueued != nil {
			t.Enqueued = taskEnqueued{t.Enqueued, v}
		}
		s.Tasks = &t
	}
	return v, nil
}

// KeyError says that nodes cannot work with the keys of a store, and what to do.
type KeyError struct{ text string }

// Error implements error.
func (e *KeyError) Error() string { return e.text }

func keyErrorf(format string, args ...any) error { return &KeyError{fmt.Sprintf(format, args...)} }

// refusePlain returns an error if a node without a file of keys cannot work with the store.
func (k *keys) refusePlain() error {
	if len(k.state.Keys) == 0 {
		return nil
	}
	return keyErrorf("the store is encrypted, and this node has no keys: set --encryption-keys to the file with the key-encryption key %d",
		k.state.Keys[len(k.state.Keys)-1].KEK)
}

// refuseOthers returns an error if nodes are alive that may not know of encryption: those that have started before a time, or all if it is
// zero. A node that seals writes the first data key before it joins, so whoever has joined earlier does not.
func (v *Vault) refuseOthers(ctx context.Context, since time.Time) error {
	nodes, err := v.ledger.Nodes(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		if n.Alive && (since.IsZero() || n.Started.Before(since)) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("nodes are alive that work without encryption: %s. Encryption begins when none of them is left. Stop them, wait until "+
		"the leases of those that were killed have ended, and start this node again", strings.Join(names, ", "))
}
