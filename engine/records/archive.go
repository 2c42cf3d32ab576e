package records

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file lets ended runs leave the store through an archive.
//
// A document of the store says whether it has an archive, and the number of the node that wrote it last owns the archive. The store
// keeps which nodes are alive, so the owner renews nothing. From the first node with an archive on, no node removes ended runs that are
// not archived, also one that has none. A run is forgotten only after its part is durable. So a crash, or two owners for a moment,
// may archive a run twice and never lose one.

// An Archive keeps ended runs when the store no longer does.
type Archive interface {
	// Keep makes a part durable before it returns. A part with the same day and name has the same runs, and replaces the
	// earlier one.
	Keep(ctx context.Context, p ArchivePart) error

	// Check returns what keeps the archive from taking runs.
	Check(ctx context.Context) error

	// Address says where the archive is, for people, without secrets.
	Address() string
}

// An ArchivePart is some ended runs that leave the store together.
type ArchivePart struct {
	Day  time.Time // in UTC, on which all of them ended
	Name string    // says by a hash which runs they are
	Runs iter.Seq[Archived]
}

// An ArchiveOptions is what a node knows of archives. The zero value has none.
type ArchiveOptions struct {
	Archive Archive       // nil for none
	Every   time.Duration // the longest pause between two looks for runs that may leave; 0 is a minute
	End     bool          // ends the archive that the store has, unless a node that is alive has one
}

const (
	docArchive  = "archive"
	nameArchive = "runs"

	// These bound what a part has, in runs and in bytes of events and checkpoints.
	partRuns  = 10_000
	partBytes = 16 << 20

	// keepTime bounds how long an archive may take for a part.
	keepTime = 2 * time.Minute

	// checkTime bounds how long an archive may take to say whether it works.
	checkTime = 10 * time.Second

	// claimAgain is the pause of a node that has no number yet.
	claimAgain = time.Second

	// releaseTime bounds how long a stopping node tries to let go of the archive.
	releaseTime = 2 * time.Second
)

// An archiving is the value of the document.
type archiving struct {
	On      bool       `json:"on"`
	Node    string     `json:"node,omitempty"` // name of the owner
	Address string     `json:"address,omitempty"`
	Failing *time.Time `json:"failing_since,omitempty"`
	Error   string     `json:"error,omitempty"` // why it fails
}

// An Archiver archives ended runs that may leave the store. The caller sets its exported fields.
type Archiver struct {
	ArchiveOptions

	Runs     *Runs
	Log      *slog.Logger
	Name     string                 // of the node
	Keep     func() store.Retention // of the current definition
	IsBehind func() bool            // as in [Retention]

	// These count for the metrics of the node.
	Archived func(runs int)
	Failing  func(bool)
	Oldest   func(age time.Duration) // of the run that waits longest, since its end; 0 for none

	failing archiving // as this node has told the store; only Run uses it
	backoff clock.Backoff

	mu  sync.Mutex // guards err
	err error
}

// Err returns why ended runs are not archived, or nil.
func (a *Archiver) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *Archiver) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// Governs reports whether runs leave the store only through an archive.
func (a *Archiver) Governs(ctx context.Context) (bool, error) {
	if a.Archive != nil {
		return true, nil
	}
	_, v, err := a.read(ctx)
	return v.On, err
}

// Run archives runs until ctx ends.
func (a *Archiver) Run(ctx context.Context) {
	if a.Runs.Store.Trimmer == nil {
		return
	}
	every := cmp.Or(a.Every, trimEvery)
	a.backoff = clock.Backoff{First: claimAgain, Most: max(claimAgain, min(every, trimEvery))}
	for ctx.Err() == nil {
		mine, err := a.look(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			a.backoff.Pause(ctx)
		case mine:
			a.backoff.Reset()
			clock.Pause(ctx, every)
		case a.Archive != nil && a.Runs.Node.Number() == 0:
			clock.Pause(ctx, claimAgain)
		default:
			clock.Pause(ctx, min(every, trimEvery))
		}
	}
	a.release(context.WithoutCancel(ctx))
}

// look archives what may leave if this node owns the archive.
func (a *Archiver) look(ctx context.Context) (mine bool, err error) {
	d, v, err := a.read(ctx)
	if err != nil {
		return false, err
	}
	if a.Archive == nil {
		return false, a.watch(ctx, d, v)
	}
	if mine, err = a.claim(ctx, &d, v); !mine {
		a.Failing(false)
		a.Oldest(0)
		a.note(v.trouble())
		return false, err
	}
	if a.IsBehind() {
		return true, nil
	}
	err = a.archiveAll(ctx)
	if ctx.Err() == nil {
		a.tell(ctx, d, err)
	}
	return true, err
}

// read reads the document. There is none before the first archive.
func (a *Archiver) read(ctx context.Context) (store.Document, archiving, error) {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	return readArchiving(ctx, a.Runs.Store.Documents)
}

func readArchiving(ctx context.Context, documents store.Documents) (d store.Document, v archiving, err error) {
	d, err = documents.Document(ctx, docArchive, nameArchive)
	if errors.Is(err, store.ErrNotFound) {
		return d, v, nil
	}
	if err == nil {
		err = json.Unmarshal(d.Value, &v)
	}
	if err != nil {
		err = fmt.Errorf("whether the store has an archive: %w", err)
	}
	return d, v, err
}

// write writes the document for a node, if nobody else has written it meanwhile. d becomes what was written.
func (a *Archiver) write(ctx context.Context, node int64, d *store.Document, v archiving) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	versions, err := a.Runs.Store.Documents.WriteDocuments(ctx, node, []store.DocumentWrite{{
		Kind: docArchive, Name: nameArchive, Version: d.Version, Value: model.EncodeJSON(v),
	}}, nil)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrFenced) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("note the archive in the store: %w", err)
	}
	d.Version, d.Node = versions[0], node
	return true, nil
}

// isAlive reports whether the node that owns the archive is alive.
func (a *Archiver) isAlive(ctx context.Context, node int64) (bool, error) {
	if node == 0 {
		return false, nil // it has let go
	}
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	nodes, err := a.Runs.Store.Ledger.Nodes(ctx)
	return slices.ContainsFunc(nodes, func(n store.NodeInfo) bool { return n.Node == node && n.Alive }), err
}

// claim reports whether this node owns the archive. It takes one that no node has.
func (a *Archiver) claim(ctx context.Context, d *store.Document, v archiving) (bool, error) {
	me := a.Runs.Node.Number()
	if me == 0 {
		return false, nil
	}
	mine := archiving{On: true, Node: a.Name, Address: a.Archive.Address()}
	if d.Node == me {
		return true, nil
	}
	if taken, err := a.isAlive(ctx, d.Node); err != nil || taken && v.On {
		return false, err
	}
	ok, err := a.write(ctx, me, d, mine)
	if ok {
		a.failing = archiving{}
		a.Log.Info("this node archives ended runs", "archive", mine.Address)
	}
	return ok, err
}

// watch looks at the archive of a store whose node has none.
func (a *Archiver) watch(ctx context.Context, d store.Document, v archiving) error {
	if !v.On {
		a.note(nil)
		return nil
	}
	taken, err := a.isAlive(ctx, d.Node)
	switch {
	case err != nil:
		return err
	case taken:
		a.note(v.trouble())
		return nil
	case !a.End:
		a.note(fmt.Errorf("ended runs stay in the store: it has the archive %s, and no node has it now. Start a node with --archive, or "+
			"end the archive by a node with --archive none", v.Address))
		return nil
	}
	v.On = false
	v.Failing = nil
	v.Error = ""
	v.Node = ""
	ended, err := a.write(ctx, 0, &d, v)
	if ended {
		a.note(nil)
		a.Log.Warn("the archive of the store has ended, so ended runs leave the store without it", "archive", v.Address)
	}
	return err
}

// trouble returns what the owner has told of the archive, or nil.
func (v archiving) trouble() error {
	if v.Failing == nil {
		return nil
	}
	return fmt.Errorf("ended runs stay in the store, because node %s cannot archive them in %s since %s: %s", v.Node, v.Address,
		v.Failing.Format(time.RFC3339), v.Error)
}

// tell tells other nodes and people whether the archive works. They hear of a change once.
func (a *Archiver) tell(ctx context.Context, d store.Document, failed error) {
	a.Failing(failed != nil)
	now := archiving{On: true, Node: a.Name, Address: a.Archive.Address()}
	if failed != nil {
		since := time.Now().UTC()
		if a.failing.Failing != nil {
			since = *a.failing.Failing
		}
		now.Failing, now.Error = &since, failed.Error()
	}
	changed := (now.Failing == nil) != (a.failing.Failing == nil)
	a.failing = now
	a.note(now.trouble())
	if !changed {
		return
	}
	if failed != nil {
		a.Log.Error("ended runs cannot be archived, so they stay in the store; trying again", "archive", now.Address, "error", failed)
	} else {
		a.Log.Info("ended runs are archived again", "archive", now.Address)
	}
	if _, err := a.write(ctx, a.Runs.Node.Number(), &d, now); err != nil {
		a.Log.Warn("other nodes do not learn how the archive is", "error", err)
	}
}

// archiveAll archives all runs that may leave, part by part. If there are none, it asks whether the archive works, so that people learn
// what is wrong before the first run waits for it.
func (a *Archiver) archiveAll(ctx context.Context) error {
	for kept := false; ; kept = true {
		page, err := a.past(ctx)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			a.Oldest(0)
			if kept {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			return a.Archive.Check(ctx)
		}
		slices.SortStableFunc(page, func(x, y store.RunRecord) int { return x.Ended.Compare(y.Ended) })
		a.Oldest(a.Runs.Now().Sub(page[0].Ended))
		for len(page) > 0 {
			day := dayOf(page[0].Ended)
			n := slices.IndexFunc(page, func(r store.RunRecord) bool { return !dayOf(r.Ended).Equal(day) })
			if n < 0 {
				n = len(page)
			}
			if err := a.archive(ctx, day, page[:n]); err != nil {
				return err
			}
			page = page[n:]
		}
		if !clock.Pause(ctx, trimPause) {
			return ctx.Err()
		}
	}
}

// past reads runs that may leave, as many as a part may have.
func (a *Archiver) past(ctx context.Context) ([]store.RunRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	return a.Runs.Store.Trimmer.Past(ctx, a.Keep(), partRuns, min(partBytes, a.Runs.pageBytes()))
}

// archive archives runs that ended on a day, and then forgets them.
func (a *Archiver) archive(ctx context.Context, day time.Time, runs []store.RunRecord) error {
	keep, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	part := ArchivePart{Day: day, Name: partName(runs), Runs: func(yield func(Archived) bool) {
		for _, r := range runs {
			if !yield(archivedOf(r)) {
				return
			}
		}
	}}
	if err := a.Archive.Keep(keep, part); err != nil {
		return err
	}
	a.Archived(len(runs))
	forget, cancel := context.WithTimeout(context.WithoutCancel(ctx), clock.StoreTimeout)
	defer cancel()
	return a.Runs.Store.Trimmer.Forget(forget, runs)
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// partName names a part after its runs. A repetition of the part after a crash gets the same name, and any other part another one.
func partName(runs []store.RunRecord) string {
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = fmt.Sprintf("%s %d\n", r.ID, r.Version)
	}
	slices.Sort(ids)
	h := sha256.New()
	for _, id := range ids {
		h.Write([]byte(id))
	}
	return runs[0].Ended.UTC().Format("150405") + "-" + hex.EncodeToString(h.Sum(nil)[:10])
}

// release lets another node have the archive at once. Without it, others wait until this node is out.
func (a *Archiver) release(ctx context.Context) {
	me := a.Runs.Node.Number()
	if a.Archive == nil || me == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	d, v, err := a.read(ctx)
	if err == nil && d.Node == me {
		_, err = a.write(ctx, 0, &d, v)
	}
	if err != nil {
		a.Log.Warn("the archive is not released, others have it when this node is out", "error", err)
	}
}
