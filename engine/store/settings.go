package store

import (
	"context"
	"time"
)

// This file has the ports for what operators change. store.go has those for events and runs.

// Bundles stores definitions, so that a run ends with the one it began with. It also stores the
// current one, which serves new events on all nodes.
type Bundles interface {
	// Activate stores a definition, unless it is stored already, and makes it current. It writes
	// the audit record in the same transaction. With onlyNew, it changes nothing if the definition
	// was stored before and any definition is current. It returns the hash of the current
	// definition.
	Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by Actor) (current string, err error)

	// Keep stores a definition, unless it is stored already. It does not change the current one.
	Keep(ctx context.Context, hash string, files []byte) error

	// Promote makes a stored definition current like Activate, but only if old is current. done
	// reports whether it was.
	Promote(ctx context.Context, old, hash string, by Actor) (done bool, err error)

	// Current returns the hash of the current definition. The error is [ErrNotFound] before the
	// first one.
	Current(ctx context.Context) (hash string, err error)

	// Bundle reads a definition. The error is [ErrNotFound] if it was never stored.
	Bundle(ctx context.Context, hash string) ([]byte, error)

	// Stored lists all definitions, newest first.
	Stored(ctx context.Context) ([]StoredBundle, error)
}

// A StoredBundle is a definition in the store.
type StoredBundle struct {
	Hash   string
	Stored time.Time // when it was first stored
}

// Settings stores what operators change at run time. Every audit record changes the revision of the
// settings, also those of [Bundles].
type Settings interface {
	// Configs reads all live settings that were set at run time, and the revision of the settings.
	Configs(ctx context.Context) (map[string]Setting, int64, error)

	// SetConfig stores a setting and its audit record in one transaction, and returns the new
	// revision. ifRevision prevents lost updates: it is the revision of the setting to replace, 0
	// for none, -1 for any. The error is [ErrConflict] if the setting has another revision.
	SetConfig(ctx context.Context, name string, value []byte, ifRevision int64, by Actor) (int64, error)

	// Controls reads all controls by path, and the revision of the settings.
	Controls(ctx context.Context) (map[string]Setting, int64, error)

	// SetControl stores a control like SetConfig. A nil value removes it. The error is
	// [ErrNotFound] if there is none.
	SetControl(ctx context.Context, path string, value []byte, ifRevision int64, by Actor) (int64, error)
}

// A Setting is a live setting with its last change.
type Setting struct {
	Value    []byte // JSON
	Hash     []byte // of a token; empty for other settings
	Revision int64
	Changed  time.Time
	By       Actor
}

// An Actor is the author of a change, with the reason.
type Actor struct {
	Name   string
	Reason string
}
