package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/diff"
	"procaas/engine/fallback"
	"procaas/engine/store"
)

// This file keeps all nodes at one definition for new events: the newest. Load
// activates one in the store; the beats of the other nodes tell that something
// has changed, and follow takes it over.

// A Follower keeps this node at the definition that is current in the store. Its exported
// fields are to be set.
type Follower struct {
	Library  *Library
	Bundles  store.Bundles
	Log      *slog.Logger
	Node     string // its name
	Overrule bool   // the node's own definition becomes that of all nodes, though the store may know it
	Accepted Accepted
	Trials   *fallback.Live       // keeps the trial of a new version
	Tell     func([]canary.Event) // tells people what becomes of it

	wanted atomic.Pointer[canary.State] // the last trial, as the store has it

	once     sync.Once
	hints    chan struct{}         // see changed
	revision atomic.Int64          // of the settings, when it was looked at last
	refused  atomic.Pointer[error] // why this node cannot take the current one over; nil when it has

	meeting sync.Mutex // makes Meet one at a time

	mu     sync.Mutex // makes Load, agree and follow one at a time
	agreed bool       // the node's own definition has been handed in
}

// changed returns the channel of hints that the store may have another definition. Its size is 1:
// one look is enough for many hints.
func (f *Follower) changed() chan struct{} {
	f.once.Do(func() { f.hints = make(chan struct{}, 1) })
	return f.hints
}

// Revised notes the revision that a beat tells.
func (f *Follower) Revised(revision int64) {
	if f.revision.Swap(revision) == revision {
		return
	}
	f.hint()
}

// hint lets Follow look.
func (f *Follower) hint() {
	select {
	case f.changed() <- struct{}{}:
	default: // somebody is about to look
	}
}

// A LoadError says why a set of pipelines is refused.
type LoadError struct {
	Found []diag.Diagnostic // what is wrong, by place; may be empty
	Err   error             // why it cannot be planned; may be nil when Found has errors
}

// Error implements error.
func (e *LoadError) Error() string {
	if diag.HasErrors(e.Found) {
		return FirstError(e.Found)
	}
	return e.Err.Error()
}

// Unwrap returns what cannot be planned.
func (e *LoadError) Unwrap() error { return e.Err }

// Accepted are the events that have been accepted, and wait for pipelines.
type Accepted interface {
	// Abandoned lists what waits for pipelines that a definition takes away.
	Abandoned(ctx context.Context, before, after *Definition) ([]Waits, error)

	// Drop cancels the runs whose events a definition does not serve.
	Drop(ctx context.Context, d *Definition, by store.Actor) error
}

// A Waits is how many accepted events wait for a pipeline.
type Waits struct {
	Pipeline string `json:"pipeline"`
	Events   int    `json:"events"`
}

// A DropError refuses a definition that does not serve events that have been accepted.
type DropError struct {
	Waits []Waits // by pipeline
}

// Error implements error.
func (e *DropError) Error() string {
	total, parts := 0, make([]string, 0, len(e.Waits))
	for _, w := range e.Waits {
		total += w.Events
		parts = append(parts, fmt.Sprintf("%s: %d", w.Pipeline, w.Events))
	}
	return fmt.Sprintf("accepted events wait for pipelines that would not serve them any more, %d in all (%s); "+
		"put the pipelines back, reload when the events have run, or give them up with procaas reload --drop", total, strings.Join(parts, ", "))
}

// A Change says which definition is to be current.
type Change struct {
	To   string        // a version that the store keeps; empty for the files of the node
	Drop bool          // cancel events that wait for pipelines that it does not have
	Try  *canary.Order // only on a share of the keys; nil for on all
}

// Load makes b the definition for new events on all nodes, and tells what that
// changes. Runs that have begun keep theirs. The error is a [*LoadError]
// when the node cannot run it, or when it has no pipelines and the present one
// has some, and a [*DropError] when accepted events wait for pipelines that it
// takes away; then nothing has changed.
func (f *Follower) Load(ctx context.Context, b *tree.Bundle, by store.Actor) (diff.Diff, error) {
	return f.load(ctx, b, false, by)
}

// LoadAndDrop does so too, and cancels the runs of events that wait for pipelines that b
// does not have.
func (f *Follower) LoadAndDrop(ctx context.Context, b *tree.Bundle, by store.Actor) (diff.Diff, error) {
	return f.load(ctx, b, true, by)
}

func (f *Follower) load(ctx context.Context, b *tree.Bundle, drop bool, by store.Actor) (diff.Diff, error) {
	d, err := f.Library.Add(b)
	if err != nil {
		return diff.Diff{}, &LoadError{Err: err}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := emptied(f.Library.Present().Bundle, b); err != nil {
		return diff.Diff{}, &LoadError{Err: err}
	}
	if !drop {
		waits, err := f.Accepted.Abandoned(ctx, f.Library.Present(), d)
		if err != nil {
			return diff.Diff{}, err
		}
		if len(waits) > 0 {
			return diff.Diff{}, &DropError{waits}
		}
	}
	if _, err := f.activate(ctx, b, false, by); err != nil {
		return diff.Diff{}, err
	}
	f.agreed = true
	before := f.swap(d)
	diff := diff.ComparePlanned(diff.Side{Bundle: before.Bundle, Plans: before.Plans}, diff.Side{Bundle: d.Bundle, Plans: d.Plans})
	if drop {
		return diff, f.Accepted.Drop(ctx, d, by)
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

// activate hands a definition in, and returns the hash of the one that is current then. With
// onlyNew one that the store has ever seen does not become current again.
func (f *Follower) activate(ctx context.Context, b *tree.Bundle, onlyNew bool, by store.Actor) (current string, err error) {
	files, err := encodeFiles(b)
	if err != nil {
		return "", err
	}
	if current, err = f.Bundles.Activate(ctx, b.Hash, files, onlyNew, by); err != nil {
		return "", fmt.Errorf("save definition %s: %w", b.Hash, err)
	}
	return current, nil
}

// encodeFiles makes of a definition what the store keeps.
func encodeFiles(b *tree.Bundle) ([]byte, error) {
	files, err := json.Marshal(b.Files)
	if err != nil {
		return nil, fmt.Errorf("encode definition %s: %w", b.Hash, err)
	}
	return files, nil
}

// swap makes d the definition for new events on this node, and returns the one
// before.
func (f *Follower) swap(d *Definition) (before *Definition) {
	before = f.Library.Swap(d)
	f.refused.Store(nil)
	return before
}

// Agree brings the node to the definition of all nodes when it joins: its own,
// when the store has never seen it, otherwise the current one.
func (f *Follower) Agree(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.Library.Present().Bundle
	by := store.Actor{Name: "node " + f.Node, Reason: "start"}
	current, err := f.activate(ctx, own, f.agreed || !f.Overrule, by)
	if err != nil {
		return err
	}
	if current != own.Hash && !f.agreed {
		f.Log.Warn("this node's pipelines are older than the current ones, which it takes over; reload them here to go back",
			"own", own.Hash, "current", current)
	}
	f.agreed = true
	return f.adopt(ctx, current)
}

// Meet hears of what the store serves now, when a new run begins by a version that this node does not serve yet.
func (f *Follower) Meet(ctx context.Context, hash string) error {
	known := func() bool {
		t := f.Library.Trial()
		return hash == f.Library.Present().Bundle.Hash || t != nil && hash == t.New
	}
	if known() {
		return nil
	}
	f.meeting.Lock()
	defer f.meeting.Unlock()
	if known() {
		return nil
	}
	f.hint()
	return f.Trials.Refresh(ctx)
}

// Follow takes over what other nodes activate, until ctx ends.
func (f *Follower) Follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed():
		}
		for f.catchUp(ctx) != nil && clock.Pause(ctx, clock.MaxBackoff) {
		}
	}
}

// catchUp takes the store's current definition over.
func (f *Follower) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	var hash string
	err := f.pursue(ctx)
	if err == nil {
		hash, err = f.Bundles.Current(ctx)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = f.adopt(ctx, hash)
	}
	if err != nil && ctx.Err() == nil {
		f.Log.Warn("the current definition cannot be read, trying again", "error", err)
	}
	return err
}

// adopt makes the definition with a hash the one for new events on this node.
// One that the node cannot run is refused, and the one before stays: that is no
// error.
func (f *Follower) adopt(ctx context.Context, hash string) error {
	if f.Library.Present().Bundle.Hash == hash {
		f.refused.Store(nil)
		return nil
	}
	d, err := f.Library.Get(ctx, hash)
	if errors.Is(err, ErrUnusable) {
		f.refused.Store(&err)
		f.Log.Error("the current definition cannot run here, the one before stays; is this an older procaas?",
			"current", hash, "own", f.Library.Present().Bundle.Hash, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	before := f.swap(d)
	f.Log.Info("definition is taken over from the store", "before", before.Bundle.Hash, "now", hash)
	return nil
}

// Refused returns why this node cannot take the current definition over; nil when it has.
func (f *Follower) Refused() error {
	if err := f.refused.Load(); err != nil {
		return *err
	}
	return nil
}
