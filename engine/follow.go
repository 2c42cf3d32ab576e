package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/store"
)

// This file keeps all nodes at one definition for new events: the newest. Load
// activates one in the store; the beats of the other nodes tell that something
// has changed, and follow takes it over.

// A follower is what a node knows of the definition that is current in the
// store.
type follower struct {
	changed  chan struct{}         // the store may have another definition; of size 1: one look is enough for many hints
	revision atomic.Int64          // of the settings, when it was looked at last
	refused  atomic.Pointer[error] // why this node cannot take the current one over; nil when it has

	mu     sync.Mutex // makes Load, agree and follow one at a time
	agreed bool       // the node's own definition has been handed in
}

// revised notes the revision that a beat tells.
func (f *follower) revised(revision int64) {
	if f.revision.Swap(revision) == revision {
		return
	}
	select {
	case f.changed <- struct{}{}:
	default: // somebody is about to look
	}
}

// A DefinitionError says why a set of pipelines is refused.
type DefinitionError struct {
	Found []diag.Diagnostic // what is wrong, by place; may be empty
	Err   error             // why it cannot be planned; may be nil when Found has errors
}

// Error implements error.
func (e *DefinitionError) Error() string {
	if diag.HasErrors(e.Found) {
		return definitions.FirstError(e.Found)
	}
	return e.Err.Error()
}

// Unwrap gives what cannot be planned.
func (e *DefinitionError) Unwrap() error { return e.Err }

// Load makes b the definition for new events on all nodes, and tells what that
// changes. Runs that have begun keep theirs. The error is a [*DefinitionError]
// when the node cannot run it, or when it has no pipelines and the present one
// has some, and a [*DropError] when accepted events wait for pipelines that it
// takes away; then nothing has changed.
func (e *Engine) Load(ctx context.Context, b *tree.Bundle, by store.Actor) (diff.Diff, error) {
	return e.load(ctx, b, false, by)
}

// LoadAndDrop does so too, and cancels the runs of events that wait for pipelines that b
// does not have.
func (e *Engine) LoadAndDrop(ctx context.Context, b *tree.Bundle, by store.Actor) (diff.Diff, error) {
	return e.load(ctx, b, true, by)
}

func (e *Engine) load(ctx context.Context, b *tree.Bundle, drop bool, by store.Actor) (diff.Diff, error) {
	d, err := e.library.Add(b)
	if err != nil {
		return diff.Diff{}, &DefinitionError{Err: err}
	}
	e.follower.mu.Lock()
	defer e.follower.mu.Unlock()
	if err := emptied(e.Bundle(), b); err != nil {
		return diff.Diff{}, &DefinitionError{Err: err}
	}
	if !drop {
		waits, err := e.abandoned(ctx, e.library.Present(), d)
		if err != nil {
			return diff.Diff{}, err
		}
		if len(waits) > 0 {
			return diff.Diff{}, &DropError{waits}
		}
	}
	if _, err := e.activate(ctx, b, false, by); err != nil {
		return diff.Diff{}, err
	}
	e.follower.agreed = true
	before := e.swap(d)
	diff := diff.ComparePlanned(diff.Side{Bundle: before.Bundle, Plans: before.Plans}, diff.Side{Bundle: d.Bundle, Plans: d.Plans})
	if drop {
		return diff, e.drop(ctx, d, by)
	}
	return diff, nil
}

// emptied refuses a definition without pipelines in place of one that has some; nil
// for any other. Files are empty for a moment while editors and deployments write
// them, and to take that at its word refuses all events until somebody looks.
func emptied(before, b *tree.Bundle) error {
	if len(b.Pipelines) > 0 || len(before.Pipelines) == 0 {
		return nil
	}
	files := make([]string, 0, len(b.Files))
	for _, f := range b.Files {
		if len(bytes.TrimSpace(f.Data)) == 0 {
			files = append(files, f.Name+" (empty)")
			continue
		}
		files = append(files, f.Name)
	}
	ids := make([]string, 0, len(before.Pipelines))
	for _, p := range before.Pipelines {
		ids = append(ids, p.ID)
	}
	return fmt.Errorf("no pipelines in %s, though the server has %s; want at least one: put them back, or stop the server if it is to serve none",
		someOf(files), someOf(ids))
}

// someOf lists the first of many names, and counts the others.
func someOf(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// activate hands a definition in, and gives the hash of the one that is current then. With
// onlyNew one that the store has ever seen does not become current again.
func (e *Engine) activate(ctx context.Context, b *tree.Bundle, onlyNew bool, by store.Actor) (current string, err error) {
	files, err := json.Marshal(b.Files)
	if err != nil {
		return "", fmt.Errorf("encode definition %s: %w", b.Hash, err)
	}
	if current, err = e.o.Store.Bundles.Activate(ctx, b.Hash, files, onlyNew, by); err != nil {
		return "", fmt.Errorf("save definition %s: %w", b.Hash, err)
	}
	return current, nil
}

// swap makes d the definition for new events on this node, and gives the one
// before.
func (e *Engine) swap(d *definitions.Definition) (before *definitions.Definition) {
	before = e.library.Swap(d)
	e.follower.refused.Store(nil)
	return before
}

// agree brings the node to the definition of all nodes when it joins: its own,
// when the store has never seen it, otherwise the current one.
func (e *Engine) agree(ctx context.Context) error {
	e.follower.mu.Lock()
	defer e.follower.mu.Unlock()
	own := e.Bundle()
	by := store.Actor{Name: "node " + e.o.Name, Reason: "start"}
	current, err := e.activate(ctx, own, e.follower.agreed || !e.o.Overrule, by)
	if err != nil {
		return err
	}
	if current != own.Hash && !e.follower.agreed {
		e.log.Warn("this node's pipelines are older than the current ones, which it takes over; reload them here to go back",
			"own", own.Hash, "current", current)
	}
	e.follower.agreed = true
	return e.adopt(ctx, current)
}

// follow takes over what other nodes activate, until ctx ends.
func (e *Engine) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.follower.changed:
		}
		for e.catchUp(ctx) != nil && clock.Pause(ctx, clock.MaxBackoff) {
		}
	}
}

// catchUp takes the store's current definition over.
func (e *Engine) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	e.follower.mu.Lock()
	defer e.follower.mu.Unlock()
	hash, err := e.o.Store.Bundles.Current(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = e.adopt(ctx, hash)
	}
	if err != nil && ctx.Err() == nil {
		e.log.Warn("the current definition cannot be read, trying again", "error", err)
	}
	return err
}

// adopt makes the definition with a hash the one for new events on this node.
// One that the node cannot run is refused, and the one before stays: that is no
// error.
func (e *Engine) adopt(ctx context.Context, hash string) error {
	if e.Bundle().Hash == hash {
		e.follower.refused.Store(nil)
		return nil
	}
	d, err := e.library.Get(ctx, hash)
	if errors.Is(err, definitions.ErrUnusable) {
		e.follower.refused.Store(&err)
		e.log.Error("the current definition cannot run here, the one before stays; is this an older procaas?",
			"current", hash, "own", e.Bundle().Hash, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	before := e.swap(d)
	e.log.Info("definition is taken over from the store", "before", before.Bundle.Hash, "now", hash)
	return nil
}

// Degraded tells what does not work although the node does; nil when nothing.
func (e *Engine) Degraded() error {
	if err := e.follower.refused.Load(); err != nil {
		return fmt.Errorf("new events run by an older definition, because the current one cannot run here: %w", *err)
	}
	if s := e.o.Store.Scattered; s != nil {
		if err := s.Unreachable(); err != nil {
			return err
		}
	}
	return e.sheds()
}
