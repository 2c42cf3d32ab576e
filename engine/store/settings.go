package store

import (
	"context"
	"time"
)

// This file is the part of the ports that speaks of what operators change, as
// store.go speaks of events and runs.

// Bundles keeps definitions, so that a run ends with the one it began with, and
// knows which of them is current on all nodes: the one for new events.
type Bundles interface {
	// Activate stores a definition, unless it is stored, and makes it the
	// current one, with its audit record in one transaction. With onlyNew, it
	// changes nothing when the definition was stored before and any is current.
	// It returns the current definition's hash.
	Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by Actor) (current string, err error)

	// Keep stores a definition, unless it is stored, and leaves the current one.
	Keep(ctx context.Context, hash string, files []byte) error

	// Promote makes a stored definition current as Activate does, but only in place of another one. It reports
	// whether that was current.
	Promote(ctx context.Context, old, hash string, by Actor) (done bool, err error)

	// Current returns which definition is current; [ErrNotFound] before the first.
	Current(ctx context.Context) (hash string, err error)

	// Bundle reads a definition; [ErrNotFound] when it was never stored.
	Bundle(ctx context.Context, hash string) ([]byte, error)

	// Stored lists all definitions, the last stored first.
	Stored(ctx context.Context) ([]StoredBundle, error)
}

// A StoredBundle is a definition that the store keeps.
type StoredBundle struct {
	Hash   string
	Stored time.Time // for the first time
}

// Settings keeps what operators change at run time. Its revision changes with
// every audit record, those of [Bundles] included.
type Settings interface {
	// Configs reads all live settings that were set at run time, and the
	// revision of the settings.
	Configs(ctx context.Context) (map[string]Setting, int64, error)

	// SetConfig stores one setting with its audit record in one transaction,
	// and returns the new revision. ifRevision guards against lost updates: the
	// revision of the setting that is replaced, 0 for none, -1 for any;
	// another one gives [ErrConflict].
	SetConfig(ctx context.Context, name string, value []byte, ifRevision int64, by Actor) (int64, error)

	// Controls reads all controls by their paths, and the revision of the
	// settings.
	Controls(ctx context.Context) (map[string]Setting, int64, error)

	// SetControl stores a control as SetConfig does a setting. A nil value
	// removes it; [ErrNotFound] when there is none.
	SetControl(ctx context.Context, path string, value []byte, ifRevision int64, by Actor) (int64, error)
}

// A Setting is a live setting with its history's last line.
type Setting struct {
	Value    []byte // JSON
	Hash     []byte // of a token; empty for other settings
	Revision int64
	Changed  time.Time
	By       Actor
}

// An Actor says who changes something, and why.
type Actor struct {
	Name   string
	Reason string
}
