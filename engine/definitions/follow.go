package definitions

import (
	"bytes"
	"context"
	"encoding/base64"
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

// This file keeps all nodes at the newest definition for new events. Load activates one in the
// store. The beats of other nodes report a change, and Follow adopts it.

// A Follower keeps this node at the store's current definition. The caller sets its exported
// fields.
type Follower struct {
	Library  *Library
	Bundles  store.Bundles
	Log      *slog.Logger
	Node     string // its name
	Overrule bool   // the node's own definition becomes that of all nodes, even if the store knows it already
	Accepted Accepted
	Trials   *fallback.Live       // has the trial of a new version
	Tell     func([]canary.Event) // reports trials to people

	wanted atomic.Pointer[canary.State] // the last trial in the store

	once     sync.Once
	hints    chan struct{}         // see changed
	revision atomic.Int64          // of the settings, at the last look
	refused  atomic.Pointer[error] // why this node cannot adopt the current definition; nil if it has

	unread atomic.Pointer[error] // why the node's own files cannot run, since its start; nil after any change of the definition

	meeting sync.Mutex // serializes Meet

	mu     sync.Mutex // serializes Load, agree and follow
	agreed bool       // the node has submitted its own definition
}

// changed returns the channel of hints that the store may have another definition. Its size is 1,
// because one look is enough for many hints.
func (f *Follower) changed() chan struct{} {
	f.once.Do(func() { f.hints = make(chan struct{}, 1) })
	return f.hints
}

// Revised notes the revision from a beat.
func (f *Follower) Revised(revision int64) {
	if f.revision.Swap(revision) == revision {
		return
	}
	f.hint()
}

// hint makes Follow look.
func (f *Follower) hint() {
	select {
	case f.changed() <- struct{}{}:
	default: // a look is pending already
	}
}

// A LoadError says why pipelines are refused.
type LoadError struct {
	Found []diag.Diagnostic // diagnostics, by place; may be empty
	Err   error             // why they cannot be planned; may be nil if Found has errors
}

// Error implements error.
func (e *LoadError) Error() string {
	if diag.HasErrors(e.Found) {
		return FirstError(e.Found)
	}
	return e.Err.Error()
}

// Unwrap returns the error of the planner.
func (e *LoadError) Unwrap() error { return e.Err }

// Accepted has the accepted events that wait for pipelines.
type Accepted interface {
	// Abandoned counts, by pipeline, the waiting runs whose pipeline or transition a new definition
	// removes.
	Abandoned(ctx context.Context, before, after *Definition) ([]Waits, error)

	// Drop cancels the runs whose events a definition does not serve.
	Drop(ctx context.Context, d *Definition, by store.Actor) error
}

// A Waits is the number of accepted events that wait for a pipeline.
type Waits struct {
	Pipeline string `json:"pipeline"`
	Events   int    `json:"events"`
}

// A DropError refuses a definition that does not serve accepted events.
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
	return fmt.Sprintf("accepted events wait for pipelines or transitions that would not serve them any more, %d in all (%s); "+
		"put these back, reload when the events have run, or give them up with procaas release reload --drop", total, strings.Join(parts, ", "))
}

// A Change says which definition to make current.
type Change struct {
	To    string      // a stored version; empty for the node's files
	Files []diag.File // from outside, instead of the node's files; nil for none
	Dry   bool        // change nothing, only compare and check
	Drop  bool        // cancel events that wait for removed pipelines

	// Owners lists whose files it may change; nil for all.
	Owners []string

	Try *canary.Order // try it on a share of the keys; nil for all keys
}

// Load makes b the definition for new events on all nodes, and returns the differences. Runs that
// have begun keep theirs. The error is a [*LoadError] if the node cannot run b, or if b has no
// pipelines and the current definition has some. It is a [*DropError] if accepted events wait for
// pipelines that b removes. After an error nothing has changed.
func (f *Follower) Load(ctx context.Context, b *tree.Bundle, by store.Actor) (diff.Diff, error) {
	return f.LoadAs(ctx, b, Change{}, by)
}

// LoadAndDrop is Load, but cancels the runs of events that wait for removed pipelines.
func (f *Follower) LoadAndDrop(ctx context.Context, b *tree.Bundle, by store.Actor) (diff.Diff, error) {
	return f.LoadAs(ctx, b, Change{Drop: true}, by)
}

// LoadAs is Load with the Drop and the Owners of a change. The error may also be an [*OwnerError].
func (f *Follower) LoadAs(ctx context.Context, b *tree.Bundle, how Change, by store.Actor) (diff.Diff, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.mayLoad(ctx, b, how.Drop)
	if err != nil {
		return diff.Diff{}, err
	}
	if how.Owners == nil {
		_, err = f.activate(ctx, b, false, by)
	} else {
		err = f.activateOwn(ctx, b, how, by)
	}
	if err != nil {
		return diff.Diff{}, err
	}
	f.agreed = true
	diff := f.Library.changes(f.swap(d), d)
	if how.Drop {
		return diff, f.Accepted.Drop(ctx, d, by)
	}
	return diff, nil
}

// PreviewLoad returns what LoadAs would change, or its error, and changes nothing.
func (f *Follower) PreviewLoad(ctx context.Context, b *tree.Bundle, how Change) (diff.Diff, error) {
	d, err := f.mayLoad(ctx, b, how.Drop)
	if err != nil {
		return diff.Diff{}, err
	}
	if how.Owners != nil {
		if _, err := f.ofOwners(ctx, b, how.Owners); err != nil {
			return diff.Diff{}, err
		}
	}
	return f.Library.changes(f.Library.Present(), d), nil
}

// changes returns the differences of now from before.
func (l *Library) changes(before, now *Definition) diff.Diff {
	return diff.ComparePlanned(
		diff.Side{Bundle: before.Bundle, Plans: before.Plans}, diff.Side{Bundle: now.Bundle, Plans: now.Plans}, l.Compare...,
	)
}

// mayLoad compiles a definition, and returns why it may not become current.
func (f *Follower) mayLoad(ctx context.Context, b *tree.Bundle, drop bool) (*Definition, error) {
	d, err := f.Library.Add(b)
	if err != nil {
		return nil, &LoadError{Err: err}
	}
	if err := emptied(f.Library.Present().Bundle, b); err != nil {
		return nil, &LoadError{Err: err}
	}
	if drop {
		return d, nil
	}
	waits, err := f.Accepted.Abandoned(ctx, f.Library.Present(), d)
	if err != nil {
		return nil, err
	}
	if len(waits) > 0 {
		return nil, &DropError{waits}
	}
	return d, nil
}

// emptied refuses a definition without pipelines that would replace one with pipelines. Files are
// empty for a moment while editors and deployments write them. Loading them then would refuse all
// events until somebody notices.
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

// activate submits a definition, and returns the hash of the one that is current after that. With
// onlyNew, a definition that the store has ever seen does not become current again.
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

// encodeFiles encodes a definition for the store, as a list of its files in JSON. It encodes one by one into a buffer of the right size:
// all at once would take a multiple of their size, since a buffer grows by doubling it.
func encodeFiles(b *tree.Bundle) ([]byte, error) {
	size := 0
	for _, f := range b.Files {
		size += base64.StdEncoding.EncodedLen(len(f.Data)) + len(f.Name) + len(f.ID) + 64 // the names of the fields
	}
	var all bytes.Buffer
	all.Grow(size)
	one := json.NewEncoder(&all)
	all.WriteByte('[')
	for i, f := range b.Files {
		if i > 0 {
			all.WriteByte(',')
		}
		if err := one.Encode(f); err != nil {
			return nil, fmt.Errorf("encode definition %s: %w", b.Hash, err)
		}
	}
	all.WriteByte(']')
	return all.Bytes(), nil
}

// swap makes d the definition for new events on this node, and returns the one before.
func (f *Follower) swap(d *Definition) (before *Definition) {
	before = f.Library.Swap(d)
	f.refused.Store(nil)
	f.unread.Store(nil)
	return before
}

// Agree brings a joining node to the definition of all nodes. That is its own if the store has
// never seen it and no version is on trial, otherwise the current one.
func (f *Follower) Agree(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := f.Library.Present().Bundle
	trial, err := f.LastTrial(ctx)
	if err != nil {
		return err
	}
	var current string
	if trial.Lasts() && !f.Overrule {
		current, err = f.Bundles.Current(ctx)
	} else if current, err = f.keepsWaiting(ctx); err == nil && current == "" {
		by := store.Actor{Name: "node " + f.Node, Reason: "start"}
		current, err = f.activate(ctx, own, f.agreed || !f.Overrule, by)
	}
	if err != nil {
		return err
	}
	switch {
	case current == own.Hash || f.agreed:
	case trial.Lasts() && own.Hash != trial.New:
		f.Log.Warn("a version is on trial, so this node's pipelines are not used until the next reload",
			"own", own.Hash, "current", current, "trial", trial.New)
	default:
		f.Log.Warn("this node's pipelines are older than the current ones, which it takes over; reload them here to go back",
			"own", own.Hash, "current", current)
	}
	f.agreed = true
	return f.adopt(ctx, current)
}

// keepsWaiting returns the current definition if accepted events wait for it that the node's own one
// would not serve. A start must not do what a reload refuses. The result is empty if the node may
// submit its own definition.
func (f *Follower) keepsWaiting(ctx context.Context) (current string, err error) {
	own := f.Library.Present()
	if f.agreed || f.Overrule {
		return "", nil
	}
	current, err = f.Bundles.Current(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && current == own.Bundle.Hash:
		return "", nil
	case err != nil:
		return "", err
	}
	before, err := f.Library.Get(ctx, current)
	if errors.Is(err, ErrUnusable) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout/2)
	defer cancel()
	waits, err := f.Accepted.Abandoned(limited, before, own)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil: // too many to look at: the current one is safe
	case err != nil:
		return "", err
	case len(waits) == 0:
		return "", nil
	default:
		err = &DropError{waits}
	}
	f.Log.Error("this node's pipelines are not used until the next reload, since a reload would refuse them",
		"own", own.Bundle.Hash, "current", current, "error", err)
	return current, nil
}

// Meet reads the store's trial and current definition when a new run begins with a version that
// this node does not serve yet.
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

// Follow adopts what other nodes activate, until ctx ends.
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

// catchUp adopts the store's current definition.
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

// adopt makes the definition with a hash the one for new events on this node. If the node cannot
// run it, it keeps the one before, which is not an error.
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

// Refused returns why this node cannot adopt the current definition, or nil.
func (f *Follower) Refused() error {
	if err := f.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// NoteUnread notes that the node has started with the store's definition, because its own files cannot run.
func (f *Follower) NoteUnread(why error) { f.unread.Store(&why) }

// Unread returns why the node's own files could not run at its start, or nil. It is nil once another definition, or
// the same one from good files, is current.
func (f *Follower) Unread() error {
	if err := f.unread.Load(); err != nil {
		return *err
	}
	return nil
}
