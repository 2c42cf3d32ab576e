package definitions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/canary"
	"procaas/engine/diff"
	"procaas/engine/store"
)

// A History shows the definitions in the store. The caller sets its exported fields.
type History struct {
	Library *Library
	Kept    store.Store

	mu     sync.Mutex           // guards shorts
	shorts map[[2]string]string // short descriptions of the differences between two definitions
}

// A Version is a definition in the store.
type Version struct {
	Version string    `json:"version" doc:"The hash of its files."`
	State   string    `json:"state,omitempty" doc:"current: new events use it. canary 5%: new events of this share of the keys use it. shadow 5%: nodes replay this share of the ended runs with it. rolled back: a canary or shadow ended so. Absent for others."`
	Since   time.Time `json:"since" doc:"When it last became current, from the audit; otherwise when it was stored."`
	By      string    `json:"by,omitempty" doc:"The actor who made it current."`
	Reason  string    `json:"reason,omitempty"` // why
	Before  string    `json:"before,omitempty" doc:"The version that it replaced then."`
	Later   string    `json:"later,omitempty"` // why it last became current again, or was rolled back
	LaterBy string    `json:"later_by,omitempty" doc:"The actor of that, if it was after the version had first become current."`
	Changes string    `json:"changes,omitempty" doc:"The first difference to that version, and how many more there are."`
	Runs    int       `json:"runs" doc:"The unfinished and failed runs that began with it."`

	Shadow *canary.Shadowed `json:"shadow,omitempty" doc:"What replays with it have found; absent if it is not in the shadow."`

	first    time.Time // of By, Reason and Before; zero if the audit has nothing
	replaced string    // the version that it replaced last
}

// came adds a record of the audit that makes the version current or tries it. Records come newest
// first.
func (v *Version) came(a store.Audited, before string) {
	if v.first.IsZero() || a.Changed.Before(v.first) {
		v.first = a.Changed
		v.By = a.By.Name
		v.Reason = a.By.Reason
		v.Before = before
	}
}

// StateCurrent is the state of the version for new events.
const StateCurrent = "current"

// A VersionDetail is a version with its files and differences.
type VersionDetail struct {
	Version
	Diff  diff.Diff     `json:"diff" doc:"The differences to the version that it replaced."`
	Files []VersionFile `json:"files" doc:"Its files."`
}

// A VersionFile is a file of a version.
type VersionFile struct {
	Name string `json:"name" doc:"The path of the file when it was read."`
	Path string `json:"path" doc:"The path below the folder of the set, on any machine. The version is a hash of these paths and the contents."`
	Text string `json:"text" doc:"Its contents."`
}

// A VersionError says why the name of a version is wrong.
type VersionError struct{ Message string }

// Error implements error.
func (e *VersionError) Error() string { return e.Message }

// fewestDigits is how many digits of a hash are needed to name a version.
const fewestDigits = 4

// Versions lists up to limit versions, the one that last became current first.
func (h *History) Versions(ctx context.Context, limit int) ([]Version, error) {
	all, err := h.versions(ctx)
	if err != nil {
		return nil, err
	}
	all = all[:min(len(all), limit)]
	runs, err := h.Kept.Runs.CountBundles(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the runs of versions: %w", err)
	}
	for i := range all {
		v := &all[i]
		v.Runs = runs[v.Version]
		if v.Changes, err = h.short(ctx, v.Before, v.Version); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// versions lists all versions without their runs and changes.
func (h *History) versions(ctx context.Context) ([]Version, error) {
	stored, err := h.Kept.Bundles.Stored(ctx)
	if err != nil {
		return nil, fmt.Errorf("list versions: %w", err)
	}
	current, err := h.Kept.Bundles.Current(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("list versions: %w", err)
	}
	all, places := make([]Version, len(stored)), map[string]int{}
	for i, b := range stored {
		all[i] = Version{Version: b.Hash, Since: b.Stored}
		places[b.Hash] = i
	}
	if t := cmp.Or(h.Library.Trial(), h.Library.Shadow()); t != nil {
		if i, ok := places[t.New]; ok {
			v := &all[i]
			v.State = fmt.Sprintf("canary %g%%", t.Percent)
			v.Since = t.Began
			v.By = t.By
			v.Reason = t.Reason
			v.Before = t.Old
			v.first = t.Began
			v.Shadow = t.Shadow
			if t.IsInShadow() {
				v.State = fmt.Sprintf("%s %g%%", canary.InShadow, t.Percent)
			}
		}
	}
	if i, ok := places[current]; ok {
		all[i].State = StateCurrent
	}
	// A record that is no text, or no event of a canary, names no version.
	err = h.audits(ctx, store.AuditDefinition, func(a store.Audited) {
		var before, after string
		_, _ = json.Unmarshal(a.Before, &before), json.Unmarshal(a.After, &after)
		if i, ok := places[after]; ok {
			v := &all[i]
			if v.first.IsZero() {
				v.Since = a.Changed
				v.Later = a.By.Reason
				v.LaterBy = a.By.Name
				v.replaced = before
			}
			v.came(a, before)
		}
	})
	if err != nil {
		return nil, err
	}
	err = h.audits(ctx, store.AuditCanary, func(a store.Audited) {
		var e canary.Event
		_ = json.Unmarshal(a.After, &e)
		i, ok := places[e.New]
		if !ok {
			return
		}
		v := &all[i]
		if v.State == "" && e.Phase == canary.RolledBack && (v.first.IsZero() || a.Changed.After(v.Since)) {
			v.State = e.Phase
			v.Since = a.Changed
			v.Later = a.By.Reason
			v.LaterBy = a.By.Name
		}
		v.came(a, e.Old)
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if v := &all[i]; v.Since.Equal(v.first) { // it came once
			v.Later, v.LaterBy = "", ""
		}
	}
	slices.SortStableFunc(all, func(a, b Version) int {
		if current := a.State == StateCurrent; current != (b.State == StateCurrent) {
			return map[bool]int{true: -1, false: 1}[current]
		}
		return b.Since.Compare(a.Since)
	})
	return all, nil
}

// audits reads all audit records of a kind, newest first.
func (h *History) audits(ctx context.Context, kind string, each func(store.Audited)) error {
	for f := (store.AuditFilter{Kind: kind, Limit: 1000}); ; {
		audits, err := h.Kept.Audits.Audit(ctx, f)
		if err != nil {
			return fmt.Errorf("list versions: %w", err)
		}
		for _, a := range audits {
			each(a)
			f.Before = a.Revision
		}
		if len(audits) < f.Limit {
			return nil
		}
	}
}

// Find returns the version with a hash, or with the first digits of a hash, or the current one.
func (h *History) Find(ctx context.Context, name string) (Version, error) {
	all, err := h.versions(ctx)
	if err != nil {
		return Version{}, err
	}
	var found []Version
	for _, v := range all {
		if name == StateCurrent && v.State == StateCurrent ||
			strings.HasPrefix(v.Version, name) && (len(name) >= fewestDigits || name == v.Version) {
			found = append(found, v)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Version{}, &VersionError{fmt.Sprintf("%d versions begin with %q; give more digits", len(found), name)}
	}
	return Version{}, &VersionError{fmt.Sprintf("there is no version %q; want at least %d digits of one that procaas release versions lists", name,
		fewestDigits)}
}

// Previous returns the version that the current one replaced.
func (h *History) Previous(ctx context.Context) (Version, error) {
	all, err := h.versions(ctx)
	if err != nil {
		return Version{}, err
	}
	if len(all) == 0 || all[0].State != StateCurrent || all[0].replaced == "" {
		return Version{}, &VersionError{"the audit names no version before the current one; name one that procaas release versions lists"}
	}
	return h.Find(ctx, all[0].replaced)
}

// ErrNoFiles reports that the node has no files that it could read again.
var ErrNoFiles = errors.New("this server was not started with pipelines that it could read again; send some with procaas release deploy")

// Restore reads the definition of a version from the store, to load it again.
func (h *History) Restore(ctx context.Context, name string) (*tree.Bundle, error) {
	v, err := h.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := h.Library.Read(ctx, v.Version)
	return b, unreadable(err)
}

// Show returns the details of a version.
func (h *History) Show(ctx context.Context, name string) (d VersionDetail, err error) {
	if d.Version, err = h.Find(ctx, name); err != nil {
		return d, err
	}
	v := &d.Version
	runs, err := h.Kept.Runs.CountBundles(ctx)
	if err != nil {
		return d, fmt.Errorf("count the runs of versions: %w", err)
	}
	v.Runs = runs[v.Version]
	files, err := h.Library.files(ctx, v.Version)
	if err != nil {
		return d, err
	}
	d.Files = []VersionFile{}
	for _, f := range files {
		d.Files = append(d.Files, VersionFile{f.Name, cmp.Or(f.ID, f.Name), string(f.Data)})
	}
	d.Diff = diff.Diff{New: v.Version, Changes: []diff.Difference{}}
	if v.Before == "" {
		return d, nil
	}
	if d.Diff, err = h.compare(ctx, v.Before, v.Version); err == nil {
		v.Changes = d.Diff.Short()
	}
	return d, err
}

// Differ returns the differences between two versions.
func (h *History) Differ(ctx context.Context, old, now string) (diff.Diff, error) {
	before, err := h.Find(ctx, old)
	if err != nil {
		return diff.Diff{}, err
	}
	after, err := h.Find(ctx, now)
	if err != nil {
		return diff.Diff{}, err
	}
	return h.compare(ctx, before.Version, after.Version)
}

// compare reads both definitions. It does not cache them, because runs need the space.
func (h *History) compare(ctx context.Context, old, now string) (diff.Diff, error) {
	a, err := h.Library.Read(ctx, old)
	if err == nil {
		b, err := h.Library.Read(ctx, now)
		if err != nil {
			return diff.Diff{}, unreadable(err)
		}
		d, err := diff.Compare(a, b, h.Library.Types, h.Library.Compare...)
		return d, unreadable(err)
	}
	return diff.Diff{}, unreadable(err)
}

// unreadable converts an error of this program, but not of the store, to a VersionError.
func unreadable(err error) error {
	if errors.Is(err, ErrUnusable) {
		return &VersionError{err.Error()}
	}
	return err
}

// maxShorts bounds the cached descriptions.
const maxShorts = 1000

// short describes the differences between two versions in short. It is empty if there is no old
// one.
func (h *History) short(ctx context.Context, old, now string) (string, error) {
	if old == "" {
		return "", nil
	}
	pair := [2]string{old, now}
	h.mu.Lock()
	text, known := h.shorts[pair]
	h.mu.Unlock()
	if known {
		return text, nil
	}
	d, err := h.compare(ctx, old, now)
	if refused, ok := errors.AsType[*VersionError](err); ok {
		text = refused.Message
	} else if err != nil {
		return "", err
	} else {
		text = d.Short()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shorts == nil || len(h.shorts) >= maxShorts {
		h.shorts = map[[2]string]string{}
	}
	h.shorts[pair] = text
	return text, nil
}

// files reads the files of a definition from the store.
func (l *Library) files(ctx context.Context, hash string) (files []diag.File, err error) {
	data, err := l.Store.Bundle(ctx, hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s %w", ErrUnusable, hash, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", hash, err)
	}
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnusable, hash, err)
	}
	return files, nil
}
